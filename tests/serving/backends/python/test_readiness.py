"""The model's own word on whether it is ready, and its control of other models (PB-008, PB-046)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving.errors import ServingError
from serving.instance import link
from serving.options import ControlMode
from serving.server import ModelServer
from tests.serving.backends.python.serving_models import (
    ADD_ONE,
    ask_server,
    infer_request,
    served,
    source_of,
    write_model,
)
from tests.waiting import wait_until

OK = "return [ok()]"


async def says(server: ModelServer, name: str = "m") -> bool | None:
    check = server.ready_check(name)
    return None if check is None else await asyncio.wait_for(check, 10)


async def test_pb_008_is_ready_drives_the_readiness_of_the_model(tmp_path: Path):
    body = "self.ready = bool(value_in(requests[0])[0])\nreturn [ok()]"
    hook = "    ready = True\n    def is_ready(self):\n        return self.ready"
    async with served(tmp_path, {"m": source_of(body, hook), "plain": source_of(OK)}) as server:
        assert await says(server) is True
        await ask_server(server, "m", 0.0)
        assert await says(server) is False
        await ask_server(server, "m", 1.0)
        assert await says(server) is True
        assert await says(server, "plain") is None


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ("    async def is_ready(self):\n        return True", True),
        ("    async def is_ready(self):\n        return False", False),
        ("    def is_ready(self):\n        return 1", False),
        ("    def is_ready(self):\n        raise ValueError('no')", False),
    ],
)
async def test_pb_008_the_hook_may_be_a_coroutine_and_must_return_bool(
    tmp_path: Path, hook: str, expected: bool
):
    async with served(tmp_path, {"m": source_of(OK, hook)}) as server:
        assert await says(server) is expected
        await ask_server(server, "m")


async def test_pb_008_a_hook_that_hangs_is_a_no_after_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(link, "_READY_LIMIT_S", 0.3)
    hook = (
        "    def is_ready(self):\n        import time\n        time.sleep(1)\n        return True"
    )
    async with served(tmp_path, {"m": source_of(OK, hook)}) as server:
        assert await says(server) is False


async def test_pb_008_who_asks_at_once_shares_one_call(tmp_path: Path):
    body = "return [array_ok(np.array([self.count], np.float32))]"
    hook = """
    count = 0
    def is_ready(self):
        import time
        time.sleep(0.2)
        self.count += 1
        return True
"""
    async with served(tmp_path, {"m": source_of(body, hook)}) as server:
        assert all(await asyncio.gather(*(says(server) for _ in range(5))))
        assert await ask_server(server, "m") == [1.0]


async def test_a_busy_model_is_what_it_said_last(tmp_path: Path):
    body = "import time\ntime.sleep(1)\nreturn [ok()]"
    hook = "    def is_ready(self):\n        return True"
    async with served(tmp_path, {"m": source_of(body, hook)}) as server:
        running = asyncio.create_task(ask_server(server, "m"))
        await wait_until(lambda: server.model("m").inflight_count == 1)
        start = asyncio.get_running_loop().time()
        assert await says(server) is True
        assert asyncio.get_running_loop().time() - start < 0.5
        await running


CONTROL = """
what = int(value_in(requests[0])[0])
if what == 0:
    pb_utils.load_model("other")
elif what == 1:
    pb_utils.unload_model("other")
elif what == 2:
    config = '{"backend": "python", "parameters": {"a": {"string_value": "b"}}, ' \\
        '"input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}], ' \\
        '"output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]}'
    pb_utils.load_model("other", config, {"file:1/model.py": open(SOURCE, "rb").read()})
ready = [pb_utils.is_model_ready("other"), pb_utils.is_model_ready("other", "1"),
         pb_utils.is_model_ready("other", "9"), pb_utils.is_model_ready("nope")]
return [array_ok(np.array(ready, np.float32))]
"""


async def test_pb_046_a_model_loads_unloads_and_asks_for_others(tmp_path: Path):
    root = tmp_path / "models"
    source = tmp_path / "other.py"
    source.write_text(source_of("return [array_ok(value_in(r) + 10) for r in requests]"))
    control = source_of(CONTROL) + f"\nSOURCE = {str(source)!r}\n"
    write_model(root, "other", source_of(ADD_ONE))
    async with served(root, {"m": control}, load_models=("m",)) as server:
        assert (await ask_server(server, "m", 3.0)).tolist() == [0, 0, 0, 0]
        assert (await ask_server(server, "m", 0.0)).tolist() == [1, 1, 0, 0]
        assert await ask_server(server, "other") == [2.0]
        assert (await ask_server(server, "m", 2.0)).tolist() == [1, 1, 0, 0]
        assert await ask_server(server, "other") == [11.0]
        assert server.model_config("other").parameters["a"].string_value == "b"
        assert (await ask_server(server, "m", 1.0)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("pb_utils.load_model('nope')", "Failed to load model: .*nope"),
        ("pb_utils.load_model('m', '{bad')", "not JSON"),
        ("pb_utils.is_model_ready('m', 'x')", "'x' is no version"),
    ],
)
async def test_pb_046_what_cannot_be_loaded_raises_with_the_reason(
    tmp_path: Path, call: str, told: str
):
    async with served(tmp_path, {"m": source_of(f"{call}\nreturn [ok()]")}) as server:
        with pytest.raises(ServingError, match=told):
            await ask_server(server, "m")


async def test_pb_046_loading_is_refused_outside_of_explicit_mode(tmp_path: Path):
    body = "pb_utils.load_model('m')\nreturn [ok()]"
    options = {"model_control_mode": ControlMode.NONE, "load_models": ()}
    async with served(tmp_path, {"m": source_of(body)}, **options) as server:
        with pytest.raises(ServingError, match="explicit model load / unload is not allowed"):
            await ask_server(server, "m")


async def test_pb_046_not_in_auto_complete_config(tmp_path: Path):
    hook = """
    @staticmethod
    def auto_complete_config(config):
        pb_utils.load_model("m")
"""
    with pytest.raises(ServingError, match="not in auto_complete_config"):
        async with served(tmp_path, {"m": source_of(OK, hook)}):
            pass


async def test_pb_046_not_in_finalize(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    hook = "    def finalize(self):\n        pb_utils.load_model('m')"
    async with served(tmp_path, {"m": source_of(OK, hook)}) as server:
        await ask_server(server, "m")

    assert "cannot be loaded or unloaded in finalize" in caplog.text


async def test_an_execution_that_hangs_is_ended_at_its_limit_and_the_model_comes_back(
    tmp_path: Path,
):
    body = "import time\ntime.sleep(value_in(requests[0])[0])\nreturn [ok()]".replace(
        "value_in(requests[0])[0]", "float(value_in(requests[0])[0])"
    )
    config = 'parameters { key: "execute_timeout_seconds" value { string_value: "0.5" } }'
    async with served(tmp_path, {"m": (source_of(body), config)}) as server:
        with pytest.raises(ServingError, match=r"did not end within 0\.5 s"):
            await asyncio.wait_for(ask_server(server, "m", 60.0), 3)
        await wait_until(lambda: server.is_model_ready("m"))
        assert await ask_server(server, "m", 0.0) == [1.0]


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "1e99"])
async def test_an_impossible_limit_is_refused_with_its_name(tmp_path: Path, value: str):
    config = f'parameters {{ key: "execute_timeout_seconds" value {{ string_value: "{value}" }} }}'
    with pytest.raises(ServingError, match="parameter 'execute_timeout_seconds' of model 'm'"):
        async with served(tmp_path, {"m": (source_of(OK), config)}):
            pass


async def test_limits_of_the_server_hold_for_all_models_of_the_backend(tmp_path: Path):
    body = "import time\ntime.sleep(60)"
    options = {"backend_config": {"python": {"execute-timeout-seconds": "0.5"}}}
    async with served(tmp_path, {"m": source_of(body)}, **options) as server:
        with pytest.raises(ServingError, match="did not end within"):
            await asyncio.wait_for(ask_server(server, "m"), 5)


async def test_a_sender_that_is_dropped_without_the_final_flag_ends_its_request(tmp_path: Path):
    config = "model_transaction_policy { decoupled: true }"
    body = "requests[0].get_response_sender().send(ok())"
    async with served(tmp_path, {"m": (source_of(body), config)}) as server:
        got: list = []
        request = infer_request("m")
        request.on_response = got.append
        server.infer(request)
        await wait_until(lambda: bool(got) and got[-1].is_final)

    assert "let go of the response sender" in got[-1].error.message
