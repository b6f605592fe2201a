"""Completions and chats: what is asked, and the members of a generate request that ask it.

A model qualifies by its signature, the one of Triton's vLLM backend: `text_input` in (or `messages`
for a chat), `text_output` out, both strings. Source: spec TOOL-060. Pure; any thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from serving.config.decode import ModelSpec, TensorSpec
from serving.errors import InvalidArgumentError
from serving.protocol.openai import chat
from serving.protocol.openai.members import MemberError, Members

PROMPT = "text_input"
MESSAGES = "messages"
TEXT = "text_output"
COUNT_IN = "num_input_tokens"
COUNT_OUT = "num_output_tokens"
FINISH = "finish_reason"

_SAMPLING = "sampling_parameters"
_ASK_FOR = ("return_num_input_tokens", "return_num_output_tokens", "return_finish_reason")
_OTHER_NAMES = {"stop": "stop_words", "seed": "random_seed"}
"""As the models of Triton's TensorRT-LLM backend have them."""
_INT63 = 2**63 - 1
_WITHOUT_EFFECT = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
)


@dataclass(slots=True)
class TextCall:
    """One completion or chat as asked for."""

    model: str
    is_chat: bool
    prompt: str = ""
    messages: list[tuple[str, str]] = field(default_factory=list)
    is_streamed: bool = False
    with_usage: bool = False
    """At the end of a stream; a whole answer always has it."""
    stop: tuple[str, ...] = ()
    sampling: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    """Members that OpenAI does not have: for the model, as in generate."""

    @property
    def max_tokens(self) -> int:
        return int(self.sampling["max_tokens"])


def read_call(members: Members, *, is_chat: bool, default_max_tokens: int) -> TextCall:
    """Raises MemberError."""
    call = TextCall(members.text("model"), is_chat)
    if is_chat:
        call.messages = chat.read_messages(members.take("messages"))
    else:
        call.prompt = _prompt(members.take("prompt"))
    _refuse_the_rest(members)
    call.is_streamed = members.flag("stream")
    call.with_usage = _with_usage(members, call.is_streamed)
    call.stop = members.texts("stop", 4)
    call.sampling = _sampling(members, call.stop, default_max_tokens)
    members.drop(*_WITHOUT_EFFECT)
    call.extra = members.rest()
    return call


def _prompt(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise MemberError(
            "prompt",
            "'prompt' must be given, as a string or a list of one string; send other prompts in "
            "requests of their own, and tokens as text",
        )
    return value


def _refuse_the_rest(members: Members) -> None:
    """What changes the answer in a way that no model is asked for."""
    members.refuse("n", 1)
    members.refuse("best_of", 1)
    members.refuse("echo", False)
    members.refuse("suffix", "")
    members.refuse("logprobs", False)
    members.refuse("top_logprobs", 0)
    members.refuse("logit_bias", {})
    members.refuse("tools", [])
    members.refuse("tool_choice", "none", "auto")
    members.refuse("functions", [])
    members.refuse("function_call", "none", "auto")
    members.refuse("response_format", {"type": "text"})
    members.refuse("modalities", ["text"])
    members.refuse("audio")
    members.refuse("web_search_options")


def _with_usage(members: Members, is_streamed: bool) -> bool:
    options = members.take("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict) or not is_streamed:
        raise MemberError("stream_options", "'stream_options' must be an object, with stream true")
    return Members(options).flag("include_usage")


def _sampling(members: Members, stop: tuple[str, ...], default_max_tokens: int) -> dict[str, Any]:
    most = members.whole("max_tokens", 1, _INT63)
    newer = members.whole("max_completion_tokens", 1, _INT63)
    given = {
        "max_tokens": newer or most or default_max_tokens,
        "temperature": members.number("temperature", 0, 2),
        "top_p": members.number("top_p", 0, 1),
        "seed": members.whole("seed", -_INT63 - 1, _INT63),
        "frequency_penalty": members.number("frequency_penalty", -2, 2),
        "presence_penalty": members.number("presence_penalty", -2, 2),
        "stop": list(stop) or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def check_signature(spec: ModelSpec, *, is_chat: bool) -> None:
    """Raises InvalidArgumentError that says what the model lacks."""
    wanted = (PROMPT, MESSAGES) if is_chat else (PROMPT,)
    if not any(_is_text(spec.inputs.get(name)) for name in wanted):
        names = " or ".join(f"'{name}'" for name in wanted)
        raise _unfit(spec, f"string input {names}")
    if not _is_text(spec.outputs.get(TEXT)):
        raise _unfit(spec, f"string output '{TEXT}'")


def _is_text(tensor: TensorSpec | None) -> bool:
    return tensor is not None and tensor.datatype.is_bytes


def _unfit(spec: ModelSpec, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"model '{spec.name}' does not complete text: it has no {what}; ask it by "
        f"/v2/models/{spec.name}/infer"
    )


def generate_members(call: TextCall, spec: ModelSpec) -> dict[str, Any]:
    """The members of the generate request. Raises InvalidArgumentError."""
    inputs = spec.inputs
    members: dict[str, Any] = {}
    if call.is_chat and _is_text(inputs.get(MESSAGES)) and "chat_template" not in spec.parameters:
        rows = [{"role": role, "content": content} for role, content in call.messages]
        members[MESSAGES] = orjson.dumps(rows).decode()
    elif call.is_chat:
        members[PROMPT] = chat.prompt_of(call.messages, spec.parameters)
    else:
        members[PROMPT] = call.prompt
    for name, value in (
        ("stream", call.is_streamed),
        ("exclude_input_in_output", True),
        *((name, True) for name in _ASK_FOR),
    ):
        if name in inputs:
            members[name] = value
    asked = _as_json(call, inputs) if _SAMPLING in inputs else _one_by_one(call, inputs)
    return asked | members  # a member of the caller's own does not replace the prompt


def _as_json(call: TextCall, inputs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """All in the one input that the vLLM backend has for them."""
    own = {name: value for name, value in call.extra.items() if name in inputs}
    others = {name: value for name, value in call.extra.items() if name not in inputs}
    # The standard library: a number of the caller's own may be larger than 64 bits.
    return {_SAMPLING: json.dumps(call.sampling | others), **own}


def _one_by_one(call: TextCall, inputs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """As an input of that name where the model has one, otherwise as a request parameter."""
    members = dict(call.extra)
    for name, value in call.sampling.items():
        own = next((item for item in (name, _OTHER_NAMES.get(name)) if item in inputs), None)
        if own is not None:
            members[own] = value
        else:
            members[name] = orjson.dumps(value).decode() if isinstance(value, list) else value
    return members


def wanted_outputs(spec: ModelSpec) -> list[str]:
    return [name for name in (TEXT, COUNT_IN, COUNT_OUT, FINISH) if name in spec.outputs]
