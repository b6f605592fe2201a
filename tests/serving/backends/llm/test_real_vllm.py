"""The real vLLM, in an environment of its own, with a model made here (VLLM-01).

`make test-all` makes the environment and runs this; elsewhere CONCH_TEST_VLLM names it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from serving.errors import ServingError
from tests.serving.backends.llm.test_text_models import (
    answers,
    call,
    flag,
    refused,
    running,
    said,
    start,
    write,
)
from tests.serving.backends.llm.tiny_llama import SENTENCE
from tests.waiting import wait_until

ENVIRONMENT = os.environ.get("CONCH_TEST_VLLM", "")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not ENVIRONMENT, reason="CONCH_TEST_VLLM names no environment with vllm"),
]
ARGUMENTS = {
    "model": "llama",
    "dtype": "float32",
    "max_model_len": 128,
    "max_num_seqs": 4,
    "enforce_eager": True,
}
CONFIG = f"""backend: "vllm"
parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{ENVIRONMENT}" }} }}
parameters {{ key: "ENABLE_VLLM_HEALTH_CHECK" value {{ string_value: "true" }} }}
parameters {{ key: "REPORT_CUSTOM_METRICS" value {{ string_value: "true" }} }}
"""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("llama")
    script = Path(__file__).with_name("tiny_llama.py")
    python = Path(ENVIRONMENT) / "bin" / "python"
    subprocess.run([python, script, directory], check=True, timeout=300)
    return directory


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": "",
    }.items():
        monkeypatch.setenv(name, value)


async def test_vllm_01_text_streams_cancels_and_embeds(tmp_path: Path, llama: Path):
    write(tmp_path, "writer", CONFIG, ARGUMENTS)
    write(tmp_path, "vectors", CONFIG, ARGUMENTS | {"runner": "pooling", "convert": "embed"})
    for name in ("writer", "vectors"):
        (tmp_path / name / "1" / "llama").symlink_to(llama)
    prompt, rest = SENTENCE[:9], SENTENCE[9:]
    greedy = {"temperature": 0, "max_tokens": 100}

    async with running(tmp_path) as server:
        assert await said(server, call("writer", greedy, text_input=prompt)) == SENTENCE
        pieces = await answers(
            server, call("writer", greedy, text_input=prompt, stream=flag(), return_logprobs=flag())
        )
        assert len(pieces) > 10
        assert b"".join(piece["text_output"][0] for piece in pieces).decode() == rest

        chat = json.dumps([{"role": "user", "content": prompt}])
        assert await said(server, call("writer", greedy, messages=chat)) == rest

        limited = call("writer", greedy | {"max_tokens": 3}, text_input=prompt)
        assert await said(server, limited) == prompt + rest[:3]
        assert "must be non-negative" in await refused(
            server, call("writer", {"temperature": -1}, text_input=prompt)
        )

        endless = call("writer", greedy | {"ignore_eos": True}, text_input=prompt, stream=flag())
        seen, over = start(server, endless)
        await wait_until(lambda: len(seen) > 2)
        endless.cancel()
        await asyncio.wait_for(over.wait(), 10)
        assert isinstance(seen[-1].error, ServingError)

        same = [said(server, call("writer", greedy, text_input=prompt)) for _ in range(8)]
        assert await asyncio.gather(*same) == [SENTENCE] * 8

        await wait_until(lambda: "vllm:kv_cache_max_tokens{" in server.custom_metrics.render())
        (tokens,) = re.findall(
            r'kv_cache_max_tokens{model="writer",version="1"} (\d+)', server.custom_metrics.render()
        )
        assert int(tokens) >= 128

        (vector,) = await answers(server, call("vectors", text_input=prompt))
        assert vector["embedding"].shape == (64,)
