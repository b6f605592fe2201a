"""The pure half of the OpenAI routes: stop sequences, templates, sampling of other signatures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import InvalidArgumentError
from serving.protocol.openai import chat, text
from serving.protocol.openai.members import MemberError, Members
from serving.protocol.openai.stop import StopScanner
from tests.serving.loading import spec_of

TENSORRT_LLM = """
name: "llm" backend: "python"
input { name: "text_input" data_type: TYPE_STRING dims: [1] }
input { name: "max_tokens" data_type: TYPE_INT32 dims: [1] }
input { name: "stop_words" data_type: TYPE_STRING dims: [-1] optional: true }
input { name: "random_seed" data_type: TYPE_UINT64 dims: [1] optional: true }
output { name: "text_output" data_type: TYPE_STRING dims: [-1] }
"""


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
    st.integers(1, 5),
)
def test_stop_sequences_are_found_however_the_text_is_cut(
    said: str, stops: list[str], size: int
) -> None:
    scanner = StopScanner(stops)
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    out = "".join(map(scanner.feed, pieces)) + scanner.rest()

    if not any(stop in said for stop in stops):
        assert (out, scanner.is_stopped) == (said, False)
    else:
        # Whichever is complete first ends the text.
        assert scanner.is_stopped
        assert said.startswith(out)
        assert not any(stop in out for stop in stops)
        assert any(said[len(out) :].startswith(stop) for stop in stops)


def test_what_could_begin_a_stop_sequence_is_held_back() -> None:
    scanner = StopScanner(["###"])

    assert [scanner.feed(piece) for piece in ("a#", "#", "b", "##")] == ["a", "", "##b", ""]
    assert scanner.rest() == "##"


def test_what_a_caller_writes_is_no_template() -> None:
    messages = [("user", "{role} {content}")]

    assert chat.prompt_of(messages, {}) == "user: {role} {content}\nassistant:"


def test_template_without_a_place_for_the_content_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="has no {content}"):
        chat.prompt_of([("user", "x")], {"chat_template": "{role}"})


def test_parts_of_type_text_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    assert chat.read_messages([{"role": "user", "content": parts}]) == [("user", "ab")]


def read(**values: Any) -> text.TextCall:
    members = Members({"model": "llm", "prompt": "x", **values})
    return text.read_call(members, is_chat=False, default_max_tokens=16)


def test_sampling_goes_to_inputs_of_these_names_and_else_into_parameters() -> None:
    call = read(stop=["a", "b"], seed=3, temperature=1, top_k=5, text_input="mine")

    assert text.generate_members(call, spec_of(TENSORRT_LLM)) == {
        "text_input": "x",
        "max_tokens": 16,
        "stop_words": ["a", "b"],
        "random_seed": 3,
        "temperature": 1.0,
        "top_k": 5,
    }


def test_stop_sequences_as_a_parameter_are_json() -> None:
    spec = spec_of(TENSORRT_LLM.replace("stop_words", "other"))

    assert json.loads(text.generate_members(read(stop="a"), spec)["stop"]) == ["a"]


def test_null_counts_as_absent() -> None:
    call = read(stop=None, n=None, max_tokens=None, logprobs=None)

    assert call.sampling == {"max_tokens": 16}


@pytest.mark.parametrize("prompt", [None, ["a", "b"], [1, 2], 5])
def test_other_prompts_than_one_text_are_refused(prompt: object) -> None:
    with pytest.raises(MemberError, match="'prompt' must be given") as caught:
        read(prompt=prompt)
    assert caught.value.param == "prompt"
