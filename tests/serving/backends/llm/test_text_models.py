"""The vllm and tensorrtllm backends in instance processes, on engines that echo (VLLM-01, TLLM-01).

The engines keep to the interfaces of vLLM and TensorRT-LLM (tests/data/llm_engines); the real vLLM
answers in test_real_vllm.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.errors import ErrorCode, ServingError
from serving.options import ControlMode, ServerOptions
from serving.response import InferenceResponse
from serving.server import ModelServer
from tests.serving.loading import request_of
from tests.waiting import wait_until

ENGINES = Path(__file__).parents[3] / "data" / "llm_engines"
TRT_CONFIG = """backend: "tensorrtllm"
input [{ name: "text_input" data_type: TYPE_STRING dims: [1] optional: true },
       { name: "input_ids" data_type: TYPE_INT32 dims: [-1] optional: true },
       { name: "messages" data_type: TYPE_STRING dims: [1] optional: true },
       { name: "streaming" data_type: TYPE_BOOL dims: [1] optional: true },
       { name: "max_tokens" data_type: TYPE_INT32 dims: [1] optional: true },
       { name: "bad_words" data_type: TYPE_STRING dims: [-1] optional: true }]
output { name: "text_output" data_type: TYPE_STRING dims: [-1] }
model_transaction_policy { decoupled: true }
parameters { key: "gpt_model_path" value { string_value: "/engines/llama" } }
parameters { key: "kv_cache_free_gpu_mem_fraction" value { string_value: "0.5" } }
"""


def write(root: Path, name: str, config: str, settings: Any = None) -> None:
    version = root / name / "1"
    version.mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)
    if settings is not None:
        (version / "model.json").write_text(
            settings if isinstance(settings, str) else json.dumps(settings)
        )


@contextlib.asynccontextmanager
async def running(root: Path, loaded: str = "*") -> AsyncIterator[ModelServer]:
    """`loaded` at the start; all by default."""
    options = ServerOptions(
        (root,),
        model_control_mode=ControlMode.EXPLICIT,
        load_models=(loaded,) if loaded else (),
        exit_timeout_secs=10,
    )
    server = ModelServer(options)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ENGINES))


def texts(*items: str) -> np.ndarray:
    return np.array([item.encode() for item in items], dtype=np.object_)


def flag(value: bool = True) -> np.ndarray:
    return np.array([value])


def call(name: str, sampling: Any = None, **inputs: Any) -> Any:
    arrays = {
        key: texts(value) if isinstance(value, str) else np.asarray(value)
        for key, value in inputs.items()
    }
    if sampling is not None:
        text = sampling if isinstance(sampling, str) else json.dumps(sampling)
        arrays["sampling_parameters"] = texts(text)
    return request_of(arrays, model=name)


def start(server: ModelServer, request: Any) -> tuple[list[InferenceResponse], asyncio.Event]:
    """Responses as they come, and when the last one has."""
    seen: list[InferenceResponse] = []
    over = asyncio.Event()

    def on_response(response: InferenceResponse) -> None:
        seen.append(response)
        if response.is_final:
            over.set()

    request.on_response = on_response
    server.infer(request)
    return seen, over


async def answers(server: ModelServer, request: Any) -> list[dict[str, Any]]:
    """The tensors of each response. Raises: the error of a response."""
    seen, over = start(server, request)
    await asyncio.wait_for(over.wait(), 20)
    for response in seen:
        if response.error is not None:
            raise response.error
    return [
        {item.name: item.array for item in response.outputs}
        for response in seen
        if response.outputs
    ]


async def said(server: ModelServer, request: Any) -> str:
    pieces = await answers(server, request)
    return b"".join(piece["text_output"][0] for piece in pieces).decode()


async def refused(server: ModelServer, request: Any) -> str:
    with pytest.raises(ServingError) as caught:
        await answers(server, request)
    assert caught.value.code is ErrorCode.INVALID_ARG
    return caught.value.message


async def test_vllm_01_a_model_that_only_names_its_engine_generates_text(tmp_path: Path):
    write(tmp_path, "w", 'backend: "vllm"', {"model": "a/b"})
    async with running(tmp_path) as server:
        config = server.model_config("w")
        assert config.model_transaction_policy.decoupled
        assert [item.name for item in config.input][:3] == ["text_input", "input_ids", "messages"]
        assert "cumulative_logprob" in [item.name for item in config.output]

        # The prompt comes first in an answer that is not streamed, unless it is excluded.
        assert await said(server, call("w", text_input="a b c")) == "a b cc b a "
        without = call("w", text_input="a b c", exclude_input_in_output=flag())
        assert await said(server, without) == "c b a "

        pieces = await answers(server, call("w", text_input="a b c", stream=flag()))
        assert [piece["text_output"][0] for piece in pieces] == [b"c ", b"b ", b"a "]

        # Tokens instead of text, sampling parameters as text, and what they leave out.
        tokens = call("w", {"max_tokens": "2"}, input_ids=np.array([5, 6, 7], np.int32))
        assert await said(server, tokens) == "#7 #6 "

        named = call("w", text_input="a b c", exclude_input_in_output=flag())
        named.parameters = {"max_tokens": 1, "of_someone_else": 3}
        assert await said(server, named) == "c "


async def test_vllm_01_a_chat_is_written_by_the_template_of_the_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path, "w", 'backend: "vllm"', {"model": "a/b"})
    chat = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}])
    async with running(tmp_path) as server:
        assert await said(server, call("w", messages=chat)) == "assistant: x assistant: hi user: "

    monkeypatch.setenv("ECHO_CHAT_TEMPLATE", "{content}")
    async with running(tmp_path) as server:
        letters = "".join(f"#{ord(letter)} " for letter in "xih")
        assert await said(server, call("w", messages=chat)) == letters
        system = json.dumps([{"role": "system", "content": "be brief"}])
        told = await refused(server, call("w", messages=system))
        assert "chat template does not take these messages: System role not supported" in told


async def test_vllm_01_a_response_tells_what_the_request_asks_it_to_tell(tmp_path: Path):
    write(tmp_path, "w", 'backend: "vllm"', {"model": "a/b"})
    asks = [
        "return_finish_reason",
        "return_cumulative_logprob",
        "return_logprobs",
        "return_num_input_tokens",
        "return_num_output_tokens",
    ]
    async with running(tmp_path) as server:
        every = dict.fromkeys(asks, flag())
        (whole,) = await answers(server, call("w", {"n": 2}, text_input="a b", **every))
        first, second = await answers(server, call("w", text_input="a b", stream=flag(), **every))

    assert whole["text_output"].tolist() == [b"a bb a ", b"a bb a "]
    assert whole["finish_reason"].tolist() == [b"stop", b"stop"]
    assert whole["cumulative_logprob"].tolist() == [-1.0, -1.0]
    assert json.loads(whole["logprobs"][0])[0]["7"]["decoded_token"] == "b"
    assert whole["num_input_tokens"].tolist() == [2]
    assert whole["num_output_tokens"].tolist() == [2, 2]
    assert first["finish_reason"].tolist() == [b"None"]
    assert second["finish_reason"].tolist() == [b"stop"]
    assert first["num_output_tokens"].tolist() == [1]


async def test_vllm_01_a_call_that_nobody_waits_for_ends_in_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ECHO_PAUSE_S", "0.02")
    write(tmp_path, "w", 'backend: "vllm"', {"model": "a/b"})
    async with running(tmp_path) as server:
        request = call("w", {"max_tokens": 9000}, text_input="a " * 9000, stream=flag())
        seen, over = start(server, request)
        await wait_until(lambda: len(seen) > 2)
        others = [said(server, call("w", text_input=f"{i} x")) for i in range(20)]

        request.cancel()
        await asyncio.wait_for(over.wait(), 5)

        assert seen[-1].error is not None
        assert seen[-1].error.code is ErrorCode.CANCELLED
        assert await asyncio.gather(*others) == [f"{i} xx {i} " for i in range(20)]


async def test_vllm_01_lora_adapters_have_names_and_metrics_are_vllms(tmp_path: Path):
    on = 'parameters { key: "REPORT_CUSTOM_METRICS" value { string_value: "true" } }'
    write(tmp_path, "w", f'backend: "vllm" {on}', {"model": "a/b"})
    (tmp_path / "w" / "1" / "multi_lora.json").write_text('{"sea": "adapters/sea"}')
    adapter = tmp_path / "w" / "1" / "adapters" / "sea"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}")
    async with running(tmp_path) as server:
        adapted = call("w", {"lora_name": "sea"}, text_input="a b", stream=flag())
        assert await said(server, adapted) == "sea:b sea:a "

        counted = 'vllm:prompt_tokens_total{model="w",version="1"} 2'
        await wait_until(lambda: counted in server.custom_metrics.render())
        lines = server.custom_metrics.render().splitlines()

    assert 'vllm:generation_tokens_total{model="w",version="1"} 2' in lines
    assert 'vllm:kv_cache_usage_perc{model="w",version="1"} 0.25' in lines
    assert 'vllm:kv_cache_max_tokens{model="w",version="1"} 160' in lines
    assert 'vllm:time_to_first_token_seconds_count{model="w",version="1"} 1' in lines


async def test_vllm_01_an_engine_that_dies_comes_back_with_its_process(tmp_path: Path):
    write(tmp_path, "w", 'backend: "vllm"', {"model": "a/b"})
    async with running(tmp_path) as server:
        with pytest.raises(ServingError, match="EngineDeadError|the engine died"):
            await answers(server, call("w", text_input="die"))

        async def is_back() -> bool:
            with contextlib.suppress(ServingError):
                return await said(server, call("w", text_input="a")) == "aa "
            return False

        for _ in range(100):
            if await is_back():
                return
            await asyncio.sleep(0.1)
        pytest.fail("the engine did not come back")


async def test_vllm_01_a_pooling_engine_gives_embeddings(tmp_path: Path):
    write(tmp_path, "e", 'backend: "vllm"', {"model": "a/b", "runner": "pooling"})
    async with running(tmp_path) as server:
        assert not server.model_config("e").model_transaction_policy.decoupled
        (answer,) = await answers(
            server, call("e", text_input="a cat", return_num_input_tokens=flag())
        )

    assert answer["embedding"].tolist() == [5.0, 2.0]
    assert answer["num_input_tokens"].tolist() == [2]


async def test_tllm_01_the_names_of_triton_models_mean_the_same(tmp_path: Path):
    write(tmp_path, "t", TRT_CONFIG)
    async with running(tmp_path) as server:
        pieces = await answers(server, call("t", text_input="a b c", streaming=flag()))
        assert [piece["text_output"][0] for piece in pieces] == [b"c ", b"b ", b"a "]

        limited = call("t", text_input="a b c", max_tokens=np.array([2], np.int32))
        assert await said(server, limited) == "a b cc b "
        assert await said(server, call("t", text_input="a", bad_words=texts("x"))) == "aa "
        assert await said(server, call("t", input_ids=np.array([3, 4], np.int32))) == "#4 #3 "
        chat = json.dumps([{"role": "user", "content": "hi"}])
        assert await said(server, call("t", messages=chat)) == "assistant: hi user: "

        wrong = call("t", text_input="a")
        wrong.parameters = {"top_k": -2}
        assert "require top_k >= 0" in await refused(server, wrong)
        assert "is empty" in await refused(server, call("t", text_input=""))


async def test_tllm_01_a_max_batch_size_stays_and_tensors_have_a_batch_axis(tmp_path: Path):
    """As in the configs of Triton's tensorrtllm models."""
    write(tmp_path, "t", "max_batch_size: 8\n" + TRT_CONFIG)

    async with running(tmp_path) as server:
        row = np.array([[b"a b"]], dtype=np.object_)
        pieces = await answers(server, call("t", text_input=row))
        assert [piece["text_output"].tolist() for piece in pieces] == [[[b"a bb a "]]]
        two = np.array([[b"a"], [b"b"]], dtype=np.object_)
        assert "batch size of 2: send a request" in await refused(server, call("t", text_input=two))


async def test_tllm_01_a_model_that_is_not_decoupled_answers_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ECHO_PAUSE_S", "0.02")
    once = TRT_CONFIG.replace("decoupled: true", "decoupled: false")
    write(tmp_path, "t", f"max_batch_size: 8 dynamic_batching {{ }}\n{once}")
    write(tmp_path, "v", 'backend: "vllm" model_transaction_policy { }', {"model": "a/b"})

    async with running(tmp_path) as server:
        assert not server.model_config("v").model_transaction_policy.decoupled
        assert await said(server, call("v", text_input="a b")) == "a bb a "
        row = {"text_input": np.array([[b"a b"]], dtype=np.object_)}
        several = (answers(server, call("t", **row)) for _ in range(4))
        for pieces in await asyncio.gather(*several):
            assert [piece["text_output"].tolist() for piece in pieces] == [[[b"a bb a "]]]
        streamed = call("t", **row, streaming=np.array([[True]]))
        assert "set decoupled to true" in await refused(server, streamed)

        long = np.array([[b"a " * 9000]], dtype=np.object_)
        request = call("t", text_input=long, max_tokens=np.array([[9000]], np.int32))
        seen, over = start(server, request)
        await wait_until(lambda: server.model("t").inflight_count)
        request.cancel()
        await asyncio.wait_for(over.wait(), 10)
        assert seen[-1].error is not None
        assert seen[-1].error.code is ErrorCode.CANCELLED
