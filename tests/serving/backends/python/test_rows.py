"""Rows of the Python backend's table that are about what models see, in a real process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ServingError
from tests.serving.backends.python.serving_models import ask_server, served, source_of
from tests.serving.backends.python.writing import DECOUPLED, answers, model
from tests.serving.instance.python_models import (
    CONFIG,
    Execution,
    ask_one,
    context_for,
    hosted,
    output,
    request,
)
from tests.waiting import wait_until

OK = "return [ok()]"


async def passes(tmp_path: Path, body: str) -> None:
    """The model's own assertions hold."""
    (response,) = await answers(tmp_path, f"{body.strip()}\nreturn [ok()]")
    assert response.error is None, response.error.message


async def test_pb_001_the_class_must_have_its_name(tmp_path: Path):
    with pytest.raises(ServingError, match="defines no class TritonPythonModel"):
        async with hosted(context_for(tmp_path, "class Model:\n    pass\n")):
            pass


async def test_pb_003_every_helper_of_the_config_completes_it(tmp_path: Path):
    hook = """
    @staticmethod
    def auto_complete_config(config):
        assert config.as_dict()["name"] == "m"
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [2], "optional": True})
        config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]})
        config.set_model_transaction_policy({"decoupled": False})
        return config
"""
    root = tmp_path / "models"
    (root / "m" / "1").mkdir(parents=True)
    (root / "m" / "1" / "model.py").write_text(source_of(OK, hook))
    async with served(root, {}) as server:
        config = server.model_config("m")

    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert config.input[0].optional
    assert list(config.input[0].dims) == [2]
    assert config.output[0].name == "OUT"
    assert not config.model_transaction_policy.decoupled


async def test_pb_020_a_tensor_is_made_of_any_array(tmp_path: Path):
    await passes(
        tmp_path,
        """
strided = pb_utils.Tensor("a", np.arange(8, dtype=np.int64)[::2])
assert strided.as_numpy().tolist() == [0, 2, 4, 6] and strided.shape() == (4,)
texts = pb_utils.Tensor("b", np.array([b"x", b""], dtype=object))
assert texts.as_numpy().tolist() == [b"x", b""]
for broken in (lambda: pb_utils.Tensor("", np.zeros(1)),
               lambda: pb_utils.Tensor("c", np.zeros(1, np.complex64))):
    try:
        broken()
    except pb_utils.TritonModelException:
        continue
    raise AssertionError("it was accepted")
""",
    )


async def test_pb_021_a_tensor_shows_name_shape_type_and_place_and_shares_memory(tmp_path: Path):
    await passes(
        tmp_path,
        """
array = np.arange(6, dtype=np.float32).reshape(2, 3)
tensor = pb_utils.Tensor("a", array)
assert (tensor.name(), tensor.shape(), tensor.is_cpu()) == ("a", (2, 3), True)
assert tensor.triton_dtype() == 11 and tensor.__dlpack_device__() == (1, 0)
back = pb_utils.Tensor.from_dlpack("b", tensor.to_dlpack())
array[0, 0] = 9
assert back.as_numpy()[0, 0] == 9, "it was copied"
assert np.from_dlpack(tensor)[0, 0] == 9
try:
    pb_utils.Tensor.from_dlpack("c", np.arange(8)[::2].__dlpack__())
except pb_utils.TritonModelException as error:
    assert "contiguous" in str(error)
else:
    raise AssertionError("it was accepted")
""",
    )


async def test_pb_022_a_request_has_all_its_getters(tmp_path: Path):
    body = """
import json
r = requests[0]
assert (r.request_id(), r.correlation_id(), r.flags(), r.timeout()) == ("7", "s", 3, 5000)
assert json.loads(r.parameters()) == {"a": 1, "b": "x"}
assert r.requested_output_names() == {"OUT"} and not r.is_cancelled()
assert r.preferred_memory() is None and type(r.trace()).__name__ == "InferenceTrace"
r.set_flags(1)
assert r.flags() == 1
assert r.get_response_sender() is r.get_response_sender()
try:
    r.exec()
except pb_utils.TritonModelException as error:
    assert "make an InferenceRequest" in str(error)
return [ok()]
"""
    async with hosted(context_for(tmp_path, model(body))) as host:
        response = await ask_one(
            host,
            id="7",
            correlation_id="s",
            sequence_start=True,
            sequence_end=True,
            timeout_us=5000,
            parameters={"a": 1, "b": "x"},
            outputs=["OUT"],
        )

    assert response.error is None, response.error.message


@pytest.mark.parametrize("hook", ["initialize", "execute", "finalize"])
async def test_pb_025_an_exception_of_the_model_is_told_from_every_hook(
    tmp_path: Path, hook: str, caplog: pytest.LogCaptureFixture
):
    raising = "raise pb_utils.TritonModelException('mine')"
    extra = ""
    if hook != "execute":
        arguments = "self, args" if hook == "initialize" else "self"
        extra = f"    def {hook}({arguments}):\n        {raising}"
    told = ""
    try:
        source = model(OK, extra) if extra else model(raising)
        async with hosted(context_for(tmp_path, source)) as host:
            response = await ask_one(host)
            told = response.error.message if response.error else ""
    except ServingError as error:
        told = error.message
    assert "TritonModelException: mine" in told + caplog.text


async def test_pb_026_every_helper_works_in_a_model(tmp_path: Path):
    await passes(
        tmp_path,
        """
r = requests[0]
assert pb_utils.get_input_tensor_by_name(r, "IN").name() == "IN"
assert pb_utils.get_input_tensor_by_name(r, "X") is None
made = pb_utils.InferenceResponse([pb_utils.Tensor("O", np.zeros(1))])
assert pb_utils.get_output_tensor_by_name(made, "O").name() == "O"
config = {"input": [{"name": "A"}], "output": [{"name": "B"}]}
assert pb_utils.get_input_config_by_name(config, "A") == {"name": "A"}
assert pb_utils.get_output_config_by_name(config, "X") is None
assert pb_utils.using_decoupled_model_transaction_policy(config) is False
assert pb_utils.triton_string_to_numpy("TYPE_FP32") is np.float32
assert pb_utils.triton_to_numpy_type(pb_utils.numpy_to_triton_type(np.int8)) is np.int8
packed = pb_utils.serialize_byte_tensor(np.array([b"ab", b""], dtype=object)).item()
assert pb_utils.deserialize_bytes_tensor(packed).tolist() == [b"ab", b""]
assert pb_utils.get_model_dir().endswith("m/1")
""",
    )


async def test_pb_027_constants_have_their_values(tmp_path: Path):
    await passes(
        tmp_path,
        """
assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START == 1
assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END == 2
assert pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL == 1
assert pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL == 1
assert pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE == 2
assert pb_utils.TRITONSERVER_MEMORY_CPU != pb_utils.TRITONSERVER_MEMORY_GPU
""",
    )


async def test_pb_031_inputs_are_in_cpu_memory_whatever_the_parameter_says(tmp_path: Path):
    config = CONFIG + (
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'
    )
    body = "assert all(t.is_cpu() for t in requests[0].inputs())\nreturn [ok()]"
    async with hosted(context_for(tmp_path, model(body), config)) as host:
        assert output(await ask_one(host)) == [1.0]


async def test_pb_050_every_level_is_logged_from_every_hook(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    lines = """pb_utils.Logger.log("plain {0}")
        pb_utils.Logger.log("loud {0}", pb_utils.Logger.ERROR)
        pb_utils.Logger.log_info("info {0}")
        pb_utils.Logger.log_warn("warn {0}")
        pb_utils.Logger.log_error("error {0}")
        pb_utils.Logger.log_verbose("verbose {0}")"""
    extra = (
        f"    def initialize(self, args):\n        {lines.format('initialize')}\n"
        f"    def finalize(self):\n        {lines.format('finalize')}\n"
    )
    body = "\n".join(line.strip() for line in lines.format("execute").splitlines()) + f"\n{OK}"
    caplog.set_level("DEBUG", "serving.models")
    async with hosted(context_for(tmp_path, model(body, extra))) as host:
        await ask_one(host)

    levels = {
        "plain": "INFO", "loud": "ERROR", "info": "INFO",
        "warn": "WARNING", "error": "ERROR", "verbose": "DEBUG",
    }  # fmt: skip
    found = {(item.getMessage(), item.levelname) for item in caplog.records}
    for hook in ("initialize", "execute", "finalize"):
        for word, level in levels.items():
            assert (f"m_0_0: {word} {hook}", level) in found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shm-default-byte-size", "1000"),
        ("shm-growth-byte-size", "0"),
        ("stub-timeout-seconds", "soon"),
        ("thread-pool-size", "-1"),
    ],
)
async def test_pb_062_an_impossible_setting_of_the_backend_is_refused_with_its_name(
    tmp_path: Path, key: str, value: str
):
    options = {"backend_config": {"python": {key: value}}}
    with pytest.raises(ServingError, match=f"backend config '{key}' is '{value}'"):
        async with served(tmp_path, {"m": source_of(OK)}, **options):
            pass


async def test_pb_062_settings_of_shared_memory_are_taken_and_tensors_grow_beyond_them(
    tmp_path: Path,
):
    settings = {
        "shm-default-byte-size": "1048576",
        "shm-growth-byte-size": "1048576",
        "stub-timeout-seconds": "30",
        "shm-region-prefix-name": "prefix",
        "thread-pool-size": "32",
    }
    sent = np.ones(2_000_000, np.float32)
    source = source_of("return [array_ok(value_in(r) + 1) for r in requests]")
    async with served(tmp_path, {"m": source}, backend_config={"python": settings}) as server:
        np.testing.assert_array_equal(await ask_server(server, "m", sent), sent + 1)


async def test_pb_061_a_stub_of_the_models_own_is_ignored_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "triton_python_backend_stub").write_bytes(b"")
    async with served(tmp_path, {"m": source_of(OK)}) as server:
        assert await ask_server(server, "m") == [1.0]

    assert "triton_python_backend_stub is not used" in caplog.text


async def test_pb_006_a_failing_coroutine_of_a_decoupled_model_fails_its_requests(tmp_path: Path):
    body = "import asyncio\nawait asyncio.sleep(0.05)\nraise ValueError('later')"
    source = model(body).replace("def execute", "async def execute")
    async with hosted(context_for(tmp_path, source, DECOUPLED)) as host:
        execution = Execution([request()]).start(host)
        (response,) = await execution.finish()

    assert response.error is not None
    assert "ValueError: later" in response.error.message


async def test_is_cancelled_is_seen_while_the_model_executes(tmp_path: Path):
    body = """
import time
for _ in range(1000):
    if requests[0].is_cancelled():
        return [ok(7.0)]
    time.sleep(0.005)
return [ok()]
"""
    async with hosted(context_for(tmp_path, model(body))) as host:
        asked = request()
        execution = Execution([asked]).start(host)
        await asyncio.sleep(0)
        await wait_until(lambda: host.executes(asked))
        asked.cancel()
        (response,) = await execution.finish()

    assert output(response) == [7.0]


async def test_a_process_that_the_model_forks_leaves_the_connection_alone(tmp_path: Path):
    body = """
import gc, os
sender = requests[0].get_response_sender()
pid = os.fork()
if pid == 0:
    told = 0
    try:
        requests[0].is_cancelled()
        sender.send(ok(-1.0), flags=FINAL)
    except BaseException as error:
        told = 7 if "no connection to the server" in str(error) else 1
    finally:
        del sender, requests
        gc.collect()
        os._exit(told)
_, status = os.waitpid(pid, 0)
sender.send(ok(float(os.waitstatus_to_exitcode(status))), flags=FINAL)
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        assert output(await ask_one(host)) == [7.0]
        assert output(await ask_one(host)) == [7.0]
