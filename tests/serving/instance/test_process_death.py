"""An instance process that dies: what its requests hear, how it comes back, what stays behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import uvloop

from serving.clock import LoopClock
from serving.errors import ErrorCode, FailureReason
from serving.instance.process import ProcessHost
from serving.instance.restart import RestartPolicy
from serving.services import ModelServices
from tests.fakes import FakeClock
from tests.serving.instance.python_models import (
    BACKEND,
    CONFIG,
    IDENTITY,
    Execution,
    ask,
    ask_one,
    context_for,
    hosted,
    output,
    placed,
    request,
)
from tests.waiting import wait_until, wait_until_blocking

DEADLY = """
import os, signal, sys, threading, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        what = int(requests[0].inputs()[0].as_numpy()[0])
        if what == 1:
            print("last words", file=sys.stderr)
            os._exit(3)
        if what == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == 3:
            sys.exit(5)
        if what == 4:
            time.sleep(60)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())])
            for r in requests
        ]
"""

QUICK = RestartPolicy(initial_delay_s=0.01)


def order(what: int) -> np.ndarray:
    return np.array([what], np.float32)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (1, ["exited with code 3", "last words"]),
        (2, ["was killed by signal SIGSEGV", "Segmentation fault", "model.py", "in execute"]),
        (3, ["exited with code 5"]),
    ],
)
async def test_a_dying_process_fails_its_batch_at_once_and_says_how_it_died(
    tmp_path: Path, what: int, told: list[str]
):
    async with hosted(context_for(tmp_path, DEADLY), restart=QUICK) as host:
        execution = Execution([request(order(what)), request()]).start(host)
        responses = await execution.finish(2.0)

    for response in responses:
        assert response.error is not None
        assert response.error.code is ErrorCode.INTERNAL
        assert response.error.failure_reason is FailureReason.BACKEND
        for part in ["model 'm', instance 'm_0_0' failed", *told]:
            assert part in response.error.message


async def test_a_process_killed_from_outside_while_it_executes_comes_back(tmp_path: Path):
    async with hosted(context_for(tmp_path, DEADLY), restart=QUICK) as host:
        execution = Execution([request(order(4))]).start(host)
        killed = host.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        (response,) = await execution.finish(2.0)

        assert response.error is not None
        assert "was killed by signal SIGKILL" in response.error.message
        await wait_until(lambda: host.is_ready)
        assert host.pid != killed
        assert output(await ask_one(host, order(0))).tolist() == [0]


async def test_a_process_killed_while_idle_makes_the_instance_unready_with_the_reason(
    tmp_path: Path,
):
    clock = FakeClock()
    changes: list[bool] = []
    async with hosted(context_for(tmp_path, DEADLY), clock=clock) as host:
        host.on_state_change = lambda: changes.append(host.is_ready)
        os.kill(host.pid, signal.SIGKILL)
        await wait_until(lambda: not host.is_ready)

        assert "restarting: its process was killed by signal SIGKILL" in host.unready_reason
        refused = await ask_one(host)
        assert refused.error is not None
        assert refused.error.code is ErrorCode.UNAVAILABLE
        assert "is not healthy" in refused.error.message

        clock.advance_us(200_000)
        await wait_until(lambda: host.is_ready)
        assert changes == [False, True]
        assert host.unready_reason == ""


async def die(host: ProcessHost) -> None:
    await ask_one(host, order(1))
    assert not host.is_ready


async def test_restarts_wait_longer_each_time(tmp_path: Path):
    clock = FakeClock()
    async with hosted(context_for(tmp_path, DEADLY), clock=clock) as host:
        for delay_us in (200_000, 400_000, 800_000):
            await die(host)
            clock.advance_us(delay_us - 1)
            assert host._restart_task is None or host._restart_task.done()
            clock.advance_us(1)
            await wait_until(lambda: host.is_ready)


async def test_a_process_that_served_a_while_starts_the_delays_anew(tmp_path: Path):
    clock = FakeClock()
    async with hosted(context_for(tmp_path, DEADLY), clock=clock) as host:
        await die(host)
        clock.advance_us(200_000)
        await wait_until(lambda: host.is_ready)
        clock.advance_us(60_000_000)
        await die(host)

        clock.advance_us(200_000)
        await wait_until(lambda: host.is_ready)


async def test_a_crash_loop_is_given_up_with_a_reason(tmp_path: Path):
    policy = RestartPolicy(initial_delay_s=0.01, give_up_after=3)
    async with hosted(context_for(tmp_path, DEADLY), restart=policy) as host:
        await die(host)
        await wait_until(lambda: host.is_ready)
        await die(host)
        await wait_until(lambda: host.is_ready)
        await die(host)

        assert host.has_failed
        assert "given up after 3 quick deaths" in host.unready_reason
        assert "exited with code 3" in host.unready_reason


async def test_a_model_that_no_longer_loads_is_given_up_too(tmp_path: Path):
    policy = RestartPolicy(initial_delay_s=0.01, give_up_after=2)
    context = context_for(tmp_path, DEADLY)
    async with hosted(context, restart=policy) as host:
        (context.version_directory / "model.py").write_text("import nothing_of_that_name\n")
        await die(host)

        await wait_until(lambda: host.has_failed)
        assert "No module named 'nothing_of_that_name'" in host.unready_reason


async def test_stop_while_restarting_ends_quietly(tmp_path: Path):
    async with hosted(context_for(tmp_path, DEADLY), restart=QUICK) as host:
        await die(host)
        await wait_until(lambda: host._restart_task is not None)

    assert not host.is_ready


async def test_another_instance_feels_nothing_of_a_death(tmp_path: Path):
    other = CONFIG.replace('"m"', '"other"')
    async with (
        hosted(context_for(tmp_path, DEADLY), restart=QUICK) as dying,
        hosted(context_for(tmp_path, IDENTITY, other)) as living,
    ):
        pid = living.pid
        answers = await asyncio.gather(ask(dying, request(order(1))), ask(living))

        assert answers[0][0].error is not None
        assert answers[1][0].error is None
        assert (living.is_ready, living.pid) == (True, pid)


async def test_a_killed_process_leaves_no_zombie_and_nothing_in_shared_memory(tmp_path: Path):
    async with hosted(context_for(tmp_path, DEADLY), restart=QUICK) as host:
        output(await ask_one(host, np.zeros(500_000, np.float32)))
        # Other programs come and go in /dev/shm, so look at what ours have open: no file there.
        maps = [Path(f"/proc/{item}/maps").read_text() for item in (host.pid, os.getpid())]
        assert all("memfd:" in text and "/dev/shm" not in text for text in maps)
        pid = host.pid
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: not host.is_ready)

        assert not Path(f"/proc/{pid}").exists()


async def test_processes_that_the_model_started_end_with_it(tmp_path: Path):
    model = """
    import subprocess
    import numpy as np
    import triton_python_backend_utils as pb_utils

    class TritonPythonModel:
        def execute(self, requests):
            child = subprocess.Popen(["sleep", "60"])
            out = pb_utils.Tensor("OUT", np.array([child.pid], np.float32))
            return [pb_utils.InferenceResponse([out])]
    """
    async with hosted(context_for(tmp_path, model)) as host:
        started = int(output(await ask_one(host))[0])
        assert Path(f"/proc/{started}").exists()

    def is_gone() -> bool:
        try:
            return " Z " in Path(f"/proc/{started}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    await wait_until(is_gone)


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.serving.instance.python_models import context_for, hosted

MODEL = '''
class TritonPythonModel:
    def execute(self, requests):
        return []
'''

async def main():
    async with hosted(context_for(Path(sys.argv[1]), MODEL)) as host:
        print(host.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path):
    root = Path(__file__).resolve().parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=root
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert Path(f"/proc/{child}").exists()

    parent.kill()
    parent.wait()
    parent.stdout.close()

    def is_gone() -> bool:
        try:
            return ") Z " in Path(f"/proc/{child}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until_blocking(is_gone)


NOISY = """
import logging, os, subprocess, sys
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        print("one", "two")
        print("x" * 20000)
        sys.stdout.write("no end of line")
        subprocess.run(["echo", "from a program"])
        logging.getLogger("mine").warning("by logging")
        os.write(2, b"\\xff raw\\n")
        pb_utils.Logger.log_info("told the logger")
        pb_utils.Logger.log("careful", pb_utils.Logger.WARNING)
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


async def test_all_that_a_model_prints_is_logged_under_its_instance(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "serving.models")

    async with hosted(context_for(tmp_path, NOISY)) as host:
        await ask_one(host)

    records = [item for item in caplog.records if item.name == "serving.models"]
    lines = {(item.stream, item.getMessage()) for item in records}
    assert ("stdout", "m_0_0: one two") in lines
    assert ("stdout", "m_0_0: no end of linefrom a program") in lines
    assert ("stderr", "m_0_0: by logging") in lines
    assert ("stderr", "m_0_0: \ufffd raw") in lines
    assert ("log", "m_0_0: told the logger") in lines
    assert ("log", "m_0_0: careful") in lines
    assert sum(len(text) - 7 for _, text in lines if "xxxx" in text) >= 8192
    assert {item.instance for item in records} == {"m_0_0"}


def test_the_loop_of_the_server_hosts_processes_as_well(tmp_path: Path):
    async def live_and_die() -> None:
        async with hosted(context_for(tmp_path, DEADLY), restart=QUICK) as host:
            for size in (1, 100_000):
                sent = np.zeros(size, np.float32)
                assert output(await ask_one(host, sent)).shape == (size,)
            await die(host)
            await wait_until(lambda: host.is_ready)
            assert output(await ask_one(host, order(0))).tolist() == [0]

    uvloop.run(live_and_die())


async def test_deaths_are_noticed_where_there_are_no_process_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_: int) -> int:
        raise OSError("not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    async with hosted(context_for(tmp_path, DEADLY), restart=QUICK) as host:
        (response,) = await Execution([request(order(1))]).start(host).finish(2.0)

    assert response.error is not None
    assert "exited with code 3" in response.error.message


def test_a_child_of_a_python_model_imports_nothing_heavy():
    root = Path(__file__).resolve().parents[3]
    modules = "serving.instance.child, serving.backends.python.backend"
    heavy = "{'grpc', 'onnxruntime', 'asyncio', 'uvloop', 'orjson', 'tritonclient.grpc._client'}"
    code = f"import sys, {modules}; print(*({heavy} & set(sys.modules)))"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == ""


@pytest.mark.parametrize("turns", [0, 1, 2, 200])
async def test_a_start_that_is_given_up_leaves_no_process(tmp_path: Path, turns: int):
    model = IDENTITY + "\n    def initialize(self, args):\n        __import__('time').sleep(9)\n"
    context = context_for(tmp_path, model)
    clock = LoopClock(asyncio.get_running_loop())
    host = ProcessHost(context, BACKEND, placed(context), services=ModelServices(clock))
    before = set(psutil.Process().children())  # one of an earlier test may end meanwhile

    starting = asyncio.create_task(host.start())
    for _ in range(turns):
        await asyncio.sleep(0.001)
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert set(psutil.Process().children()) - before == set()
    await host.stop()


async def test_deaths_of_idle_processes_leak_no_descriptor(tmp_path: Path):
    context = context_for(tmp_path, IDENTITY)
    async with hosted(context):
        pass
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        async with hosted(context) as host:
            await ask_one(host, np.zeros(100_000, np.float32))
            os.kill(host.pid, signal.SIGKILL)
            await wait_until(lambda host=host: not host.is_ready)

    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
