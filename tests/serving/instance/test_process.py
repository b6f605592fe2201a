"""A model instance in a child process: what crosses, what its errors look like, how it stops."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from serving.datatypes import BY_DTYPE
from serving.errors import ErrorCode, FailureReason, ServingError
from serving.instance.limits import ProcessLimits
from serving.instance.shared_tensors import INLINE_LIMIT_BYTES
from tests.serving.instance.python_models import (
    CONFIG,
    IDENTITY,
    Execution,
    ask,
    ask_one,
    context_for,
    hosted,
    output,
    request,
)
from tests.waiting import wait_until

HANGING = """
    def {hook}:
        import time
        time.sleep(60)
"""

SLOW = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(float(requests[0].inputs()[0].as_numpy()[0]))
        return [pb_utils.InferenceResponse([]) for _ in requests]

    def finalize(self):
        print("finalized", flush=True)
"""


@pytest.mark.parametrize("dtype", [item for item in BY_DTYPE if item.kind != "O"], ids=str)
async def test_every_fixed_size_type_comes_back_unchanged(tmp_path: Path, dtype: np.dtype):
    model = IDENTITY.replace("t.as_numpy()", "t._core_array")
    sent = np.arange(6).reshape(2, 3).astype(dtype)

    async with hosted(context_for(tmp_path, model)) as host:
        got = output(await ask_one(host, sent))

    assert got.dtype == dtype
    assert got.tobytes() == sent.tobytes()


async def test_strings_come_back_as_bytes_with_zeros_and_empties_kept(tmp_path: Path):
    sent = np.array([[b"a", b""], [b"\x00b\x00", "é".encode()]], dtype=object)

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        got = output(await ask_one(host, sent))

    assert got.tolist() == sent.tolist()


@pytest.mark.parametrize(
    "shape", [(), (0,), (3, 0, 2), (1,), (INLINE_LIMIT_BYTES // 4,), (INLINE_LIMIT_BYTES // 4 + 1,)]
)
async def test_any_shape_crosses_scalars_and_empty_tensors_too(tmp_path: Path, shape: tuple):
    sent = np.full(shape, 7, np.float32)

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        got = output(await ask_one(host, sent))

    assert got.shape == shape
    np.testing.assert_array_equal(got, sent)


async def test_a_transposed_big_tensor_arrives_in_its_own_order(tmp_path: Path):
    sent = np.arange(300 * 400, dtype=np.int64).reshape(300, 400).T

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        got = output(await ask_one(host, sent))

    np.testing.assert_array_equal(got, sent)


async def test_a_tensor_larger_than_any_buffer_crosses(tmp_path: Path):
    sent = np.arange(20_000_000, dtype=np.uint32)

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        got = output(await ask_one(host, sent))

    assert np.array_equal(got, sent)


async def test_many_small_tensors_make_a_frame_larger_than_the_socket_buffer(tmp_path: Path):
    requests = [request(np.full(4000, index, np.float32)) for index in range(60)]

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        responses = await ask(host, *requests)

    assert [output(item)[-1] for item in responses] == list(range(60))


async def test_outputs_stay_intact_while_later_batches_use_the_segments_again(tmp_path: Path):
    kept = []

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        for index in range(12):
            kept.append(output(await ask_one(host, np.full(50_000, index, np.float32))))

    for index, array in enumerate(kept):
        assert (array == index).all()


async def test_segments_are_used_again_when_nobody_looks_at_them(tmp_path: Path):
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        for index in range(50):
            output(await ask_one(host, np.full(50_000, index, np.float32)))
            gc.collect()
        pool = host._link._pool

        assert pool._created <= 4


async def test_a_model_may_write_into_its_inputs(tmp_path: Path):
    model = """
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            array = requests[0].inputs()[0].as_numpy()
            array *= 2
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])]
    """
    small, big = np.ones(3, np.float32), np.ones(50_000, np.float32)

    async with hosted(context_for(tmp_path, model)) as host:
        doubled = [output(await ask_one(host, array)) for array in (small, big)]

    assert [array[0] for array in doubled] == [2, 2]
    assert [array[0] for array in (small, big)] == [1, 1]


async def test_one_batch_answers_each_request_with_its_own_tensors(tmp_path: Path):
    requests = [request(np.full(2, index, np.float32), id=str(index)) for index in range(3)]

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        responses = await ask(host, *requests)

    assert [output(item)[0] for item in responses] == [0, 1, 2]
    assert [item.id for item in responses] == ["0", "1", "2"]
    assert {(item.model_name, item.model_version) for item in responses} == {("m", 1)}


async def test_execution_times_are_stamped_in_order(tmp_path: Path):
    execution_request = request()

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        await ask(host, execution_request)

    times = execution_request.times
    assert (
        0
        < times.compute_start_ns
        <= times.compute_input_end_ns
        <= times.compute_output_start_ns
        <= times.compute_end_ns
    )


async def test_a_broken_callback_of_one_request_leaves_the_others_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def broken(*_: object) -> None:
        raise RuntimeError("callback")

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        execution = Execution([request(), request()])
        first, second = execution.batch.requests
        first.deliver = broken
        execution.start(host)
        await execution.done
        await wait_until(lambda: execution.responses[second])
        again = await ask_one(host)

    assert again.error is None
    assert "delivering a response failed" in caplog.text


async def test_a_parameter_that_fits_no_message_fails_its_batch_only(tmp_path: Path):
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        refused = await ask_one(host, parameters={"n": 2**70})
        served = await ask_one(host)

    assert refused.error is not None
    assert "could not be handed to instance 'm_0_0'" in refused.error.message
    assert served.error is None


async def test_stop_finishes_the_running_batch_and_finalizes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    async with hosted(context_for(tmp_path, SLOW)) as host:
        execution = Execution([request(np.full(1, 0.3, np.float32))]).start(host)
        await host.stop()

        assert execution.answered.done()
        (response,) = await execution.finish()
        assert response.error is None
    assert "m_0_0: finalized" in caplog.text


async def test_a_cancelled_stop_kills_the_process_and_fails_what_it_ran(tmp_path: Path):
    async with hosted(context_for(tmp_path, SLOW)) as host:
        execution = Execution([request(np.full(1, 30, np.float32))]).start(host)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await host.stop()

        (response,) = await execution.finish(2.0)
    assert response.error is not None
    assert "was stopped" in response.error.message


async def test_a_stopped_instance_is_not_ready_and_refuses_with_its_reason(tmp_path: Path):
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        await host.stop()

        assert not host.is_ready
        response = await ask_one(host)
    assert response.error is not None
    assert response.error.code is ErrorCode.UNAVAILABLE
    assert "has been stopped" in response.error.message


async def test_stopping_twice_and_stopping_what_never_started_is_harmless(tmp_path: Path):
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        await host.stop()
        await host.stop()


async def test_stop_leaves_no_process_no_zombie_and_no_descriptor(tmp_path: Path):
    descriptors_before = set(os.listdir("/proc/self/fd"))

    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        await ask_one(host, np.zeros(100_000, np.float32))
        pid = host.pid
    gc.collect()

    assert not Path(f"/proc/{pid}").exists()
    assert len(set(os.listdir("/proc/self/fd")) - descriptors_before) <= 1


async def test_a_finalize_that_hangs_is_ended_after_its_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    model = IDENTITY + HANGING.format(hook="finalize(self)")

    async with hosted(context_for(tmp_path, model), limits=ProcessLimits(finalize_s=0.3)) as host:
        pid = host.pid

    assert not Path(f"/proc/{pid}").exists()
    assert "finalize did not end within 0.3 s" in caplog.text


async def test_a_finalize_that_raises_is_logged_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    model = IDENTITY + "\n    def finalize(self):\n        raise ValueError('at the end')\n"

    async with hosted(context_for(tmp_path, model)):
        pass

    assert "finalize failed: ValueError: at the end" in caplog.text


async def test_an_initialize_that_hangs_ends_at_the_deadline(tmp_path: Path):
    model = (
        IDENTITY
        + "\n    def initialize(self, args):\n        import time\n        time.sleep(60)\n"
    )

    with pytest.raises(ServingError, match=r"did not finish loading within 0\.5 s"):
        async with hosted(context_for(tmp_path, model), limits=ProcessLimits(initialize_s=0.5)):
            pass


async def test_a_process_that_exits_while_it_loads_says_code_and_last_words(tmp_path: Path):
    model = "import sys\nprint('no licence', file=sys.stderr)\nsys.exit(4)\n"

    with pytest.raises(ServingError, match=r"exited with code 4.*no licence"):
        async with hosted(context_for(tmp_path, model)):
            pass


async def test_a_process_that_exits_as_soon_as_it_has_loaded_has_not_started(tmp_path: Path):
    source = (
        IDENTITY
        + f"""
    def initialize(self, args):
        import os, threading, time
        open({str(tmp_path / "begun")!r}, "w").close()
        time.sleep(0.2)
        threading.Timer(0.05, os._exit, (3,)).start()
"""
    )
    hosting = hosted(context_for(tmp_path, source))
    starting = asyncio.create_task(hosting.__aenter__())
    await wait_until((tmp_path / "begun").exists)
    time.sleep(1.0)  # the loop hears of both at once
    with pytest.raises(ServingError, match="exited with code 3"):
        await starting


async def test_any_backend_can_be_hosted_by_name(tmp_path: Path):
    config = CONFIG.replace('"python"', '"identity"')

    async with hosted(context_for(tmp_path, None, config), "identity") as host:
        got = output(await ask_one(host, np.arange(4, dtype=np.float32)))

    assert got.tolist() == [0, 1, 2, 3]


async def test_an_unknown_backend_fails_the_start(tmp_path: Path):
    with pytest.raises(ServingError, match="unable to find backend library"):
        async with hosted(context_for(tmp_path, None), "nonsense"):
            pass


async def test_a_failing_execute_names_the_backend_as_the_cause(tmp_path: Path):
    model = "class TritonPythonModel:\n    def execute(self, requests):\n        return 1 / 0\n"

    async with hosted(context_for(tmp_path, model)) as host:
        responses = await ask(host, request(), request())

    for response in responses:
        assert response.error is not None
        assert response.error.code is ErrorCode.INTERNAL
        assert response.error.failure_reason is FailureReason.BACKEND
        assert "ZeroDivisionError: division by zero" in response.error.message


def test_bfloat16_is_a_type_of_the_wire():
    assert np.dtype(ml_dtypes.bfloat16) in BY_DTYPE


async def test_an_onnx_model_can_be_isolated_too(tmp_path: Path):
    node = onnx.helper.make_node("Add", ["IN", "IN"], ["OUT"])
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "double",
        [onnx.helper.make_tensor_value_info("IN", kind, ["n"])],
        [onnx.helper.make_tensor_value_info("OUT", kind, ["n"])],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    context = context_for(tmp_path, None, CONFIG.replace('"python"', '"onnxruntime"'))
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    onnx.save(model, str(context.version_directory / "model.onnx"))

    async with hosted(context, "onnxruntime") as host:
        small = output(await ask_one(host, np.ones(3, np.float32)))
        big = output(await ask_one(host, np.ones(100_000, np.float32)))

    assert small.tolist() == [2, 2, 2]
    assert (big == 2).all()


async def test_the_list_of_processes_shows_which_instance_it_is(tmp_path: Path):
    async with hosted(context_for(tmp_path, IDENTITY)) as host:
        command = Path(f"/proc/{host.pid}/cmdline").read_bytes().decode().split("\0")

    assert "m_0_0" in command


async def test_the_memory_that_comes_back_with_the_end_of_a_process_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "serving.instance.link")
    source = IDENTITY.replace(
        "class Triton", "import numpy\nBIG = numpy.ones(30_000_000)\nclass Triton"
    )
    async with hosted(context_for(tmp_path, source)) as host:
        await ask_one(host)

    (told,) = [item.args for item in caplog.records if "came back" in item.getMessage()]
    assert isinstance(told, tuple)
    assert float(str(told[0])) > 240
