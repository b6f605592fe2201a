"""From requests to calls of an engine, and from its pieces to responses.

The tensors are those of Triton's vLLM backend; `streaming`, `max_tokens`, `stop_words` and the
like, as models of TensorRT-LLM have them, mean the same. Runs in an instance process. Source: spec
VLLM-01, TLLM-01.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.backends.llm.engine import (
    Call,
    Choice,
    Piece,
    Prompt,
    RequestError,
    TextEngine,
)
from serving.backends.python import pb_utils

TEXT = "text_input"
TOKENS = "input_ids"
MESSAGES = "messages"
SAMPLING = "sampling_parameters"
EXCLUDE = "exclude_input_in_output"
STREAM = ("stream", "streaming")
_ADAPTER = "lora_name"

# Optional outputs: their name, their type, and the input that asks for each.
EXTRA = {
    "finish_reason": ("TYPE_STRING", "return_finish_reason"),
    "cumulative_logprob": ("TYPE_FP32", "return_cumulative_logprob"),
    "logprobs": ("TYPE_STRING", "return_logprobs"),
    "num_input_tokens": ("TYPE_UINT32", "return_num_input_tokens"),
    "num_output_tokens": ("TYPE_UINT32", "return_num_output_tokens"),
}
# Inputs of one value each, and the sampling parameter that each one is.
SYNONYMS = {
    "max_tokens": "max_tokens",
    "request_output_len": "max_tokens",
    "min_tokens": "min_tokens",
    "temperature": "temperature",
    "top_k": "top_k",
    "runtime_top_k": "top_k",
    "top_p": "top_p",
    "runtime_top_p": "top_p",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "random_seed": "seed",
    "stop": "stop",
    "stop_words": "stop",
    "bad_words": "bad_words",
}
_LISTS = ("stop", "bad_words")
_MOST_DIGITS = 20
_HALF = r"\ud"
"""How half a character begins in JSON, which is none without the other half."""


class _TooLargeError(Exception):
    """A number in JSON that no engine can take."""


def call_of(request: Any, number: int, engine: TextEngine) -> Call:
    """`number`: makes the call's id unlike every other.

    Raises: RequestError naming the tensor.
    """
    tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    sampling = _sampling(tensors, request, engine.sampling_names)
    if _flag(tensors, "return_logprobs") or _flag(tensors, "return_cumulative_logprob"):
        sampling.setdefault("logprobs", 1)  # engines count none unless they are asked to
    adapter = str(sampling.pop(_ADAPTER, None) or "")
    is_streamed = any(_flag(tensors, name) for name in STREAM)
    if is_streamed and _flag(tensors, EXCLUDE, default=True) is False:
        raise RequestError(
            f"'{EXCLUDE}' is false and the request is streamed: each response is the next part of "
            "the text, so the prompt cannot come first in it; leave one of the two out"
        )
    identity = request.request_id()
    return Call(
        f"{identity}-{number}" if identity else str(number),
        _prompt(tensors, engine),
        sampling,
        is_streamed,
        adapter,
    )


def refuse_rows(request: Any) -> None:
    """Of a model with max_batch_size above 0. Raises: RequestError for several prompts in one."""
    rows = max((tensor.as_numpy().shape[0] for tensor in request.inputs()), default=1)
    if rows > 1:
        raise RequestError(
            f"the request has a batch size of {rows}: send a request for each prompt, the engine "
            "runs them together by itself"
        )


def wants_prompt(request: Any, call: Call) -> bool:
    """The answer begins with the prompt: by default where it is whole and the prompt is text."""
    if call.is_streamed or pb_utils.get_input_tensor_by_name(request, TEXT) is None:
        return False
    tensor = pb_utils.get_input_tensor_by_name(request, EXCLUDE)
    return tensor is None or not _flag({EXCLUDE: tensor.as_numpy()}, EXCLUDE)


def wanted_extra(request: Any) -> list[str]:
    tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    return [name for name, (_, asks) in EXTRA.items() if _flag(tensors, asks)]


def response_of(piece: Piece, extra: list[str], prefix: str, *, as_row: bool = False) -> Any:
    """`as_row`: with a batch axis, as models with max_batch_size above 0 answer."""
    choices = piece.choices
    tensors = [_text("text_output", [prefix + choice.text for choice in choices])]
    for name in extra:
        if name == "finish_reason":
            tensors.append(_text(name, [str(choice.finish_reason) for choice in choices]))
        elif name == "cumulative_logprob":
            values = [_number(choice) for choice in choices]
            tensors.append(pb_utils.Tensor(name, np.array(values, np.float32)))
        elif name == "logprobs":
            tensors.append(_text(name, [json.dumps(choice.logprobs) for choice in choices]))
        elif name == "num_input_tokens":
            count = np.array([piece.prompt_token_count], np.uint32)
            tensors.append(pb_utils.Tensor(name, count))
        else:
            counts = [choice.token_count for choice in choices]
            tensors.append(pb_utils.Tensor(name, np.array(counts, np.uint32)))
    return _response(tensors, as_row)


def embedding_response(
    vector: list[float], tokens: int, extra: list[str], *, as_row: bool = False
) -> Any:
    tensors = [pb_utils.Tensor("embedding", np.array(vector, np.float32))]
    if "num_input_tokens" in extra:
        tensors.append(pb_utils.Tensor("num_input_tokens", np.array([tokens], np.uint32)))
    return _response(tensors, as_row)


def _response(tensors: list[Any], as_row: bool) -> Any:
    if as_row:
        tensors = [pb_utils.Tensor(item.name(), item.as_numpy()[None]) for item in tensors]
    return pb_utils.InferenceResponse(tensors)


def _number(choice: Choice) -> float:
    value = choice.cumulative_logprob
    return float("nan") if value is None else value


def _prompt(tensors: Mapping[str, Any], engine: TextEngine) -> Prompt:
    kinds = (TEXT, TOKENS, MESSAGES)
    given = [name for name in kinds if name in tensors]
    if len(given) != 1:
        raise RequestError(
            f"a request needs one of {', '.join(map(repr, kinds))}: this one has "
            + (" and ".join(map(repr, given)) or "none")
        )
    array = tensors[given[0]]
    if given == [TEXT]:
        return _single(TEXT, array)
    if given == [MESSAGES]:
        return _chat(_single(MESSAGES, array), engine)
    if not array.size:
        raise RequestError(f"'{TOKENS}' is empty: send the ids of at least one token")
    tokens = [int(item) for item in array.ravel()]
    if min(tokens) < 0:
        raise RequestError(f"'{TOKENS}' holds {min(tokens)}: ids of tokens are 0 or more")
    return tokens


def _chat(text: str, engine: TextEngine) -> Prompt:
    """By the template that the model's tokenizer has; a line for each message where it has none."""
    messages = _json(MESSAGES, text, list)
    if not messages or not all(isinstance(item, dict) for item in messages):
        raise RequestError(
            f"'{MESSAGES}' must be a JSON list of objects with role and content, with one at least"
        )
    tokens = engine.chat_tokens(messages)
    if tokens is not None:
        return tokens
    lines = [f"{item.get('role')}: {item.get('content')}\n" for item in messages]
    return "".join([*lines, "assistant:"])


def _sampling(tensors: Mapping[str, Any], request: Any, names: frozenset[str]) -> dict[str, Any]:
    # Parameters of a request may be for others; what stands in the tensors is for the engine.
    parameters = json.loads(request.parameters() or "{}")
    found = {name: value for name, value in parameters.items() if name in {*names, _ADAPTER}}
    for name, parameter in SYNONYMS.items():
        array = tensors.get(name)
        if array is None or not array.size:
            continue
        values = [_text_of(name, item) for item in array.ravel().tolist()]
        found[parameter] = values if parameter in _LISTS else values[0]
    if SAMPLING in tensors:
        found |= _json(SAMPLING, _single(SAMPLING, tensors[SAMPLING]), dict)
    return found


def _json(name: str, text: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    try:
        value = json.loads(text, parse_int=_whole) if text else kind()
    except _TooLargeError as error:
        raise RequestError(f"'{name}' holds {error}, a number of more than 64 bits") from error
    except ValueError as error:
        raise RequestError(f"'{name}' is not valid JSON: {error}") from error
    except RecursionError as error:
        raise RequestError(f"'{name}' is JSON that is nested too deeply") from error
    if _HALF in text.casefold():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"'{name}' holds a text that is no UTF-8: {error}") from error
    if not isinstance(value, kind):
        shown = "list" if kind is list else 'object such as {"temperature": 0.5}'
        raise RequestError(f"'{name}' must be a JSON {shown}, found {type(value).__name__}")
    return value


def _whole(text: str) -> int:
    """Engines hand numbers on to processes of their own, in 64 bits."""
    if len(text) > _MOST_DIGITS or not -(1 << 63) <= (value := int(text)) < 1 << 64:
        raise _TooLargeError(text if len(text) <= 2 * _MOST_DIGITS else f"{text[:_MOST_DIGITS]}...")
    return value


def _flag(tensors: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    array = tensors.get(name)
    return default if array is None or not array.size else bool(array.ravel()[0])


def _single(name: str, array: Any) -> str:
    if array.size != 1:
        raise RequestError(
            f"'{name}' must hold one text, found {array.size}: send a request for each"
        )
    return str(_text_of(name, array.ravel()[0]))


def _text_of(name: str, item: Any) -> Any:
    try:
        return item.decode() if isinstance(item, bytes) else item
    except UnicodeDecodeError as error:
        raise RequestError(f"'{name}' holds bytes that are no UTF-8 text: {error}") from error


def _text(name: str, items: list[str]) -> Any:
    array = np.array([item.encode() for item in items], dtype=np.object_)
    return pb_utils.Tensor(name, array)
