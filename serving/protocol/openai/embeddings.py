"""Embeddings: which tensors carry text and vector, and OpenAI's JSON for the vectors.

One request to the model for each text, so that any model will do and its batching gathers them.
Source: spec TOOL-061. Pure; any thread.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.config.decode import ModelSpec
from serving.errors import InvalidArgumentError
from serving.protocol.openai.answers import Usage
from serving.protocol.openai.members import MemberError, Members
from serving.protocol.openai.text import COUNT_IN, PROMPT
from serving.response import InferenceResponse

_NAMES = ("embedding", "embeddings", "sentence_embedding")
_FLOATS = ("FP32", "FP16", "BF16", "FP64")
_MOST_TEXTS = 2048


@dataclass(slots=True)
class EmbeddingCall:
    model: str
    texts: tuple[str, ...]
    is_base64: bool = False
    dimensions: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def read_call(members: Members) -> EmbeddingCall:
    """Raises MemberError."""
    model = members.text("model")
    value = members.take("input")
    texts = value if isinstance(value, list) else [value]
    if not 0 < len(texts) <= _MOST_TEXTS or not all(isinstance(item, str) for item in texts):
        raise MemberError(
            "input",
            f"'input' must be given, as a string or a list of 1 to {_MOST_TEXTS} strings; tokens "
            "are not supported",
        )
    form = members.take("encoding_format")
    if form not in (None, "float", "base64"):
        raise MemberError("encoding_format", "'encoding_format' must be 'float' or 'base64'")
    dimensions = members.whole("dimensions", 1, 2**31 - 1)
    members.drop("user")
    return EmbeddingCall(model, tuple(texts), form == "base64", dimensions, members.rest())


@dataclass(frozen=True, slots=True)
class EmbeddingTensors:
    text: str
    vector: str


def tensors_of(spec: ModelSpec) -> EmbeddingTensors:
    """Which tensors of the model to use. Raises InvalidArgumentError where none fit, or several."""
    texts = [item.name for item in spec.inputs.values() if item.datatype.is_bytes]
    vectors = [item.name for item in spec.outputs.values() if item.datatype.name in _FLOATS]
    text = PROMPT if PROMPT in texts else _only(texts)
    vector = next((name for name in _NAMES if name in vectors), None) or _only(vectors)
    if spec.is_decoupled:
        raise _unfit(spec, "it is decoupled, which may send several responses")
    if text is None:
        raise _unfit(spec, f"it has no string input '{PROMPT}', nor just one of any name")
    if vector is None:
        names = " or ".join(f"'{name}'" for name in _NAMES)
        raise _unfit(spec, f"it has no output of floats {names}, nor just one of any name")
    return EmbeddingTensors(text, vector)


def _unfit(spec: ModelSpec, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"model '{spec.name}' gives no embeddings: {why}; ask it by /v2/models/{spec.name}/infer"
    )


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def generate_members(
    call: EmbeddingCall, tensors: EmbeddingTensors, spec: ModelSpec, text: str
) -> dict[str, Any]:
    members = {**call.extra, tensors.text: text}
    for name in ("return_num_input_tokens", "dimensions"):
        if name in spec.inputs and name not in members:
            wanted = call.dimensions if name == "dimensions" else True
            if wanted is not None:
                members[name] = wanted
    return members


def wanted_outputs(tensors: EmbeddingTensors, spec: ModelSpec) -> list[str]:
    return [tensors.vector, *(name for name in (COUNT_IN,) if name in spec.outputs)]


def vector_of(
    response: InferenceResponse, call: EmbeddingCall, tensors: EmbeddingTensors
) -> NDArray[np.float32]:
    """Raises MemberError where it is not as long as the caller wants it."""
    arrays = [item.array for item in response.outputs if item.name == tensors.vector]
    vector = np.concatenate([array.astype(np.float32).ravel() for array in arrays])
    if call.dimensions not in (None, vector.size):
        raise MemberError(
            "dimensions",
            f"'dimensions': model '{call.model}' gives {vector.size} dimensions and no others",
        )
    return vector


def answer(
    call: EmbeddingCall, vectors: Sequence[NDArray[np.float32]], usage: Usage
) -> dict[str, Any]:
    rows = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, call.is_base64)}
        for index, vector in enumerate(vectors)
    ]
    counted = usage.as_json()
    body: dict[str, Any] = {"object": "list", "data": rows, "model": call.model}
    if counted is not None:
        del counted["completion_tokens"]
        body["usage"] = counted
    return body


def _encoded(vector: NDArray[np.float32], is_base64: bool) -> object:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if is_base64 else vector
