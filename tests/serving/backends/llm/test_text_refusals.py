"""What the vllm and tensorrtllm backends refuse, and with which words (VLLM-01, TLLM-01)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.errors import ServingError
from tests.serving.backends.llm.test_text_models import (
    ENGINES,
    TRT_CONFIG,
    answers,
    call,
    flag,
    refused,
    running,
    said,
    write,
)


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ENGINES))


async def test_vllm_01_a_callers_mistake_is_told_and_leaves_the_engine_as_it_is(tmp_path: Path):
    write(tmp_path, "w", 'backend: "vllm"', {"model": "a/b"})
    async with running(tmp_path) as server:
        cases = [
            (call("w"), "one of 'text_input', 'input_ids', 'messages': this one has none"),
            (
                call("w", text_input="a", input_ids=np.array([1], np.int32)),
                "this one has 'text_input' and 'input_ids'",
            ),
            (call("w", messages="{}"), "'messages' must be a JSON list"),
            (call("w", messages="[1]"), "a JSON list of objects with role and content"),
            (call("w", messages=""), "a JSON list of objects with role and content"),
            (call("w", messages="[" * 100_000), "'messages' is JSON that is nested too deeply"),
            (call("w", input_ids=np.empty(0, np.int32)), "'input_ids' is empty"),
            (call("w", input_ids=np.array([3, -1], np.int32)), "'input_ids' holds -1"),
            (call("w", text_input=""), "cannot be empty"),
            (call("w", "{", text_input="a"), "'sampling_parameters' is not valid JSON"),
            (call("w", [1], text_input="a"), "must be a JSON object"),
            (call("w", {"warmth": 1}, text_input="a"), "no sampling parameter 'warmth'; it has"),
            (call("w", {"skip_clone": True}, text_input="a"), "no sampling parameter"),
            (call("w", {"temperature": "hot"}, text_input="a"), "temperature"),
            (call("w", {"temperature": -1}, text_input="a"), "must be non-negative"),
            (
                call("w", {"seed": 2**70}, text_input="a"),
                "1180591620717411303424, a number of more",
            ),
            (
                call("w", '{"seed": 1' + "0" * 5000 + "}", text_input="a"),
                "10000000000000000000..., a number",
            ),
            (
                call("w", {"stop": "\ud800"}, text_input="a"),
                "'sampling_parameters' holds a text that",
            ),
            (
                call("w", messages='[{"role": "\\uD800"}]'),
                "'messages' holds a text that is no UTF-8",
            ),
            (call("w", {"lora_name": "x"}, text_input="a"), "no LoRA adapter 'x'"),
            (
                call("w", text_input="a", stream=flag(), exclude_input_in_output=flag(False)),
                "leave one of the two out",
            ),
        ]
        for request, words in cases:
            assert words in await refused(server, request)
        bad = call("w", text_input="a")
        bad.inputs["text_input"].array = np.array([b"\xff"], dtype=np.object_)
        assert "no UTF-8" in await refused(server, bad)

        with pytest.raises(ServingError, match="the engine failed: OverflowError: Python int too"):
            await answers(server, call("w", {"seed": 2**63}, text_input="a"))
        assert await said(server, call("w", text_input="a")) == "aa "
        assert await said(server, call("w", {"stop": "\U0001f41a"}, text_input="a")) == "aa "


@pytest.mark.parametrize(
    ("adapters", "words"),
    [
        ('{"sea": "adapters/lake"}', r"'sea' lies at \"adapters/lake\", and there is no such fol"),
        ('{"sea": 5}', "'sea' lies at 5, and there is no such folder"),
        ('{"sea": "adapters"}', "LoRA adapter 'sea' cannot be loaded: no adapter_config.json"),
        ("[]", r"1/multi_lora\.json must hold a JSON object"),
    ],
)
async def test_vllm_01_an_adapter_that_cannot_be_had_fails_the_load(
    tmp_path: Path, adapters: str, words: str
):
    """vLLM itself would die of the first request for it, and every other one with it."""
    write(tmp_path, "w", 'backend: "vllm"', {"model": "a/b"})
    (tmp_path / "w" / "1" / "adapters").mkdir()
    (tmp_path / "w" / "1" / "multi_lora.json").write_text(adapters)

    with pytest.raises(ServingError, match=words):
        async with running(tmp_path):
            pass


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (None, r"there is no 1/model\.json: write the arguments of the engine there"),
        ("{", r"1/model\.json is not valid JSON"),
        ("[1]", r"1/model\.json must hold a JSON object"),
        ({"model": "no-such-model"}, "is not a local folder"),
        ({"model": "a", "colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
async def test_vllm_01_an_engine_that_cannot_start_fails_the_load(
    tmp_path: Path, settings: Any, words: str
):
    write(tmp_path, "w", 'backend: "vllm"', settings)

    with pytest.raises(ServingError, match=words):
        async with running(tmp_path):
            pass


async def test_tllm_01_an_engine_that_cannot_start_fails_the_load(tmp_path: Path):
    nowhere = TRT_CONFIG.replace("gpt_model_path", "unused")
    write(tmp_path, "a", nowhere)
    write(tmp_path, "b", TRT_CONFIG.replace('"0.5"', '"half"'))
    beams = 'parameters { key: "max_beam_width" value { string_value: "99" } }'
    write(tmp_path, "c", TRT_CONFIG + beams)
    batching = 'parameters { key: "gpt_model_type" value { string_value: "V1" } }'
    write(tmp_path, "d", TRT_CONFIG + batching)

    async with running(tmp_path, "") as server:
        for name, words in (
            ("a", "no parameter gpt_model_path"),
            ("b", "parameter 'kv_cache_free_gpu_mem_fraction' is 'half'"),
            ("c", "more than the engine was built for"),
            ("d", "parameter 'gpt_model_type' is 'V1': TensorRT-LLM's API batches in flight"),
        ):
            with pytest.raises(ServingError, match=words):
                await server.load_model(name)


@pytest.mark.parametrize("backend", ["vllm", "tensorrtllm"])
async def test_an_engine_that_is_not_installed_is_told_with_the_way_to_get_it(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTHONPATH")
    write(tmp_path, "m", f'backend: "{backend}" max_batch_size: 8', {"model": "a"})

    with pytest.raises(ServingError, match=rf"the {backend} backend cannot be used.*pip install"):
        async with running(tmp_path):
            pass
