"""The unmodified `openai` client against a real server. TOOL-060, TOOL-061, TOOL-062, TOOL-065."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

HELLO: Any = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "a b c d"}]


def test_tool_062_the_ready_models_are_listed_and_one_is_looked_up(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [
        "echo",
        "letters",
        "numbers",
        "rows",
        "writer",
    ]
    assert client.models.retrieve("echo").object == "model"
    with pytest.raises(openai.NotFoundError, match="the model 'nope' does not exist") as caught:
        client.models.retrieve("nope")
    assert caught.value.code == "model_not_found"


def test_tool_063_a_model_is_loaded_and_unloaded(client: openai.OpenAI) -> None:
    def change(path: str) -> object:
        return client.post(f"/models/{path}", cast_to=object)

    with pytest.raises(openai.BadRequestError, match="model 'numbers' is loaded already"):
        change("numbers/load")
    assert change("numbers/unload") == {"status": "success"}
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("numbers")
    with pytest.raises(openai.BadRequestError, match="model 'numbers' is not loaded"):
        change("numbers/unload")
    with pytest.raises(openai.BadRequestError, match="no directory 'nope'"):
        change("nope/load")
    assert change("numbers/load") == {"status": "success"}


def test_tool_060_a_completion_gathers_the_responses_of_a_decoupled_model(
    client: openai.OpenAI,
) -> None:
    answer = client.completions.create(model="writer", prompt="one two three")

    assert answer.choices[0].text == "one two three"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "text_completion"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 3)


def test_tool_060_a_chat_is_one_prompt_by_the_template_of_the_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="writer", messages=HELLO)

    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "<Be brief> a b c d end"


def test_tool_060_a_chat_streams_deltas_and_ends_with_done(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="writer",
            messages=HELLO,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in chunks[1:-2]]
    assert texts == ["<Be", " brief>", " a", " b", " c", " d", " end"]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 7)  # type: ignore[union-attr]
    assert len({chunk.id for chunk in chunks}) == 1


def test_tool_060_a_completion_streams(client: openai.OpenAI) -> None:
    chunks = list(client.completions.create(model="writer", prompt="x y", stream=True))

    assert [chunk.choices[0].text for chunk in chunks] == ["x", " y", ""]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_tool_060_a_stop_sequence_ends_the_answer_before_it(client: openai.OpenAI) -> None:
    prompt = "one two three four"
    whole = client.completions.create(model="writer", prompt=prompt, stop="wo thr")
    stream = client.completions.create(model="writer", prompt=prompt, stop=["wo thr"], stream=True)

    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("one t", "stop")
    assert "".join(chunk.choices[0].text for chunk in stream) == "one t"


def test_tool_060_max_tokens_is_16_unless_it_is_given(client: openai.OpenAI) -> None:
    prompt = " ".join("x" * 20)
    for given, count in ((None, 16), (3, 3)):
        more: Any = {} if given is None else {"max_tokens": given}
        answer = client.completions.create(model="writer", prompt=prompt, **more)
        assert answer.choices[0].text.count("x") == count
        assert answer.choices[0].finish_reason == "length"


def test_tool_060_sampling_goes_to_the_model_with_what_openai_does_not_know(
    client: openai.OpenAI,
) -> None:
    answer = client.completions.create(
        model="writer",
        prompt="show",
        temperature=0,
        top_p=0.5,
        seed=7,
        presence_penalty=1,
        stop=["\n"],
        user="me",
        extra_body={"top_k": 3},
    )

    assert json.loads(answer.choices[0].text) == {
        "max_tokens": 16,
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 7,
        "presence_penalty": 1.0,
        "stop": ["\n"],
        "top_k": 3,
    }


def test_tool_060_a_model_that_is_not_decoupled_answers_and_streams(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="echo", messages=HELLO)
    assert answer.choices[0].message.content == "system: Be brief\nuser: a b c d\nassistant:"
    assert answer.usage is None

    chunks = client.completions.create(model="echo", prompt="grüß", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "grüß"


def test_tool_060_a_model_with_its_own_template_is_given_the_messages(
    client: openai.OpenAI,
) -> None:
    answer = client.chat.completions.create(model="rows", messages=HELLO)

    assert json.loads(answer.choices[0].message.content or "") == HELLO


def test_tool_060_failure_of_the_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="out of words"):
        client.completions.create(model="writer", prompt="boom")
    with pytest.raises(openai.InternalServerError, match="out of words"):
        client.completions.create(model="writer", prompt="boom", stream=True)
    stream = client.completions.create(model="writer", prompt="one boom", stream=True)
    assert next(stream).choices[0].text == "one"
    with pytest.raises(openai.APIError, match="out of words"):
        next(stream)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"n": 2}, "'n' is not supported by this server: leave it out, or give 1"),
        ({"model": "numbers"}, "has no string input 'text_input' or 'messages'"),
        ({"messages": []}, "'messages' must be given"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages\\[0\\].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "only parts of type 'text'",
        ),
        ({"temperature": 3}, "'temperature' must be a number from 0 to 2"),
        ({"max_tokens": 0}, "'max_tokens' must be a whole number from 1"),
        ({"stop": ["a", ""]}, "'stop' must be"),
        ({"logprobs": True}, "'logprobs' is not supported"),
        ({"tools": [{"type": "function"}]}, "'tools' is not supported"),
        ({"response_format": {"type": "json_object"}}, "'response_format' is not supported"),
        ({"stream_options": {"include_usage": True}}, "'stream_options' must be"),
    ],
)
def test_tool_060_what_is_refused_says_so(
    client: openai.OpenAI, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        client.chat.completions.create(**({"model": "writer", "messages": HELLO} | more))

    assert caught.value.type == "invalid_request_error"


def test_tool_061_embeddings_of_one_text_and_of_many(client: openai.OpenAI) -> None:
    one = client.embeddings.create(model="letters", input="hello")
    many = client.embeddings.create(model="letters", input=["aa", "b", ""], encoding_format="float")

    assert one.data[0].embedding == [5.0, 2.0]  # the client asks for base64 and decodes it
    assert [row.embedding for row in many.data] == [[2.0, 2.0], [1.0, 0.0], [0.0, 0.0]]
    assert [row.index for row in many.data] == [0, 1, 2]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model": "echo"}, "gives no embeddings: it has no output of floats"),
        ({"model": "numbers"}, "gives no embeddings: it has no string input 'text_input', nor"),
        ({"model": "writer"}, "gives no embeddings: it is decoupled"),
        ({"input": [[1, 2]]}, "tokens are not supported"),
        ({"input": []}, "'input' must be given"),
        ({"dimensions": 3}, "model 'letters' gives 2 dimensions and no others"),
    ],
)
def test_tool_061_what_is_refused_says_so(
    client: openai.OpenAI, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        client.embeddings.create(**({"model": "letters", "input": "x"} | more))


def test_tool_065_errors_have_openais_form(base_url: str, client: openai.OpenAI) -> None:
    with openai.OpenAI(base_url=base_url, api_key="guess", max_retries=0) as stranger:
        assert stranger.models.list().data  # not restricted here
        with pytest.raises(openai.AuthenticationError, match="expecting header 'authorization'"):
            stranger.completions.create(model="echo", prompt="x")
    with pytest.raises(openai.NotFoundError, match="Unknown request URL: POST /v1/responses"):
        client.responses.create(model="echo", input="x")
    with pytest.raises(openai.APIStatusError, match="Not allowed: DELETE /v1/models/echo"):
        client.models.delete("echo")
