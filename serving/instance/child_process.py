"""One operating system process of an instance: starting it, its output, its end.

Processes are forked by one thread that lives as long as the worker, because the kernel ties "die
with your parent" to the thread that forked. A watching thread for each process turns its output
into log records, line by line, and reports its end exactly once, when all its output has been
read. The loop only sees `spawn` and the report.
"""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import selectors
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from serving import child_program

logger = logging.getLogger("serving.models")

MAX_LINE_CHARACTERS = 8192
_TAIL_LINES = 20
_TAIL_CHARACTERS = 2000
_READ_BYTES = 65536
_POLL_S = 0.05
_FINAL_READS = 64
"""More than a pipe holds."""
_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="instance-forker")


@dataclass(frozen=True, slots=True)
class ExitReport:
    """How a process ended."""

    return_code: int
    """As in subprocess: negative is a signal number."""
    last_errors: str
    """The last lines of its standard error."""

    def __str__(self) -> str:
        text = child_program.describe_exit(self.return_code)
        if self.last_errors:
            text += f"; its last lines on standard error: {self.last_errors}"
        return text


class _Lines:
    """Splits one stream into lines and logs them; keeps the last ones."""

    def __init__(self, name: str, stream: str, level: int, extra: dict[str, str]) -> None:
        self._name = name
        self._level = level
        self._extra = extra | {"stream": stream}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def feed(self, data: bytes, *, final: bool = False) -> None:
        *lines, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        while len(self._rest) > MAX_LINE_CHARACTERS:
            lines.append(self._rest[:MAX_LINE_CHARACTERS])
            self._rest = self._rest[MAX_LINE_CHARACTERS:]
        if final and self._rest:
            lines.append(self._rest)
            self._rest = ""
        for line in lines:
            self._log(line.rstrip("\r"))

    def _log(self, line: str) -> None:
        self.tail.append(line)
        logger.log(self._level, "%s: %s", self._name, line, extra=self._extra)


class ChildProcess:
    """Made by `spawn`; `kill` may be called from any thread, also after the end."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        name: str,
        model: str,
        on_exit: Callable[[ExitReport], None],
    ) -> None:
        self.pid = process.pid
        self._process = process
        self._on_exit = on_exit
        self._lock = threading.Lock()
        """Guards `_is_reaped`: a process number may only be signalled before it is reaped."""
        self._is_reaped = False
        extra = {"model": model, "instance": name}
        self._out = _Lines(name, "stdout", logging.INFO, extra)
        self._err = _Lines(name, "stderr", logging.WARNING, extra)
        threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True).start()

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory now; 0 after its end."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """Kill the process and what it has started."""
        with self._lock:
            if not self._is_reaped:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def _watch(self) -> None:
        exited = _exit_descriptor(self.pid)
        streams = {self._process.stdout: self._out, self._process.stderr: self._err}
        try:
            with selectors.DefaultSelector() as selector:
                if exited is not None:
                    selector.register(exited, selectors.EVENT_READ)
                for pipe, lines in streams.items():
                    assert pipe is not None
                    os.set_blocking(pipe.fileno(), False)
                    selector.register(pipe, selectors.EVENT_READ, lines)
                while not self._pump(selector, None if exited is not None else _POLL_S):
                    pass
        finally:
            if exited is not None:
                os.close(exited)
            self._finish()

    def _pump(self, selector: selectors.BaseSelector, poll_s: float | None) -> bool:
        """One round; True when the process has ended. Its output is read first."""
        ended = False
        for key, _ in selector.select(poll_s):
            if key.data is None:
                ended = True
            elif not _read(key.fd, key.data):
                selector.unregister(key.fileobj)
        if poll_s is not None:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            ended = os.waitid(os.P_PID, self.pid, flags) is not None
        return ended

    def _finish(self) -> None:
        self.kill()  # what it has started and left behind, which might write for ever
        for pipe, lines in ((self._process.stdout, self._out), (self._process.stderr, self._err)):
            assert pipe is not None
            for _ in range(_FINAL_READS):
                if not _read(pipe.fileno(), lines, until_empty=True):
                    break
            lines.feed(b"", final=True)
            pipe.close()
        with self._lock:
            return_code = self._process.wait()
            self._is_reaped = True
        tail = "\n".join(self._err.tail)[-_TAIL_CHARACTERS:]
        self._on_exit(ExitReport(return_code, tail))


def _exit_descriptor(pid: int) -> int | None:
    """Readable when the process has ended; None where the kernel or a sandbox has no such thing."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _read(descriptor: int, lines: _Lines, *, until_empty: bool = False) -> bool:
    """Whether there may be more: False at the end of the stream, or when it is empty."""
    try:
        data = os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return not until_empty
    lines.feed(data)
    return bool(data)


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """What is to be started, and in which environment."""

    name: str
    model: str
    interpreter: child_program.Interpreter | None = None
    """None: the one of the server."""
    variables: Mapping[str, str] = field(default_factory=dict)


def spawn(
    plan: ProcessPlan, sock: socket.socket, on_exit: Callable[[ExitReport], None]
) -> Future[ChildProcess]:
    """Start a process that serves `sock`. `on_exit` is called once, in a watching thread."""
    return _forker.submit(_fork, plan, sock, on_exit)


def _fork(
    plan: ProcessPlan, sock: socket.socket, on_exit: Callable[[ExitReport], None]
) -> ChildProcess:
    descriptor = sock.fileno()
    shown = plan.name.replace("\0", "")  # for those who look at the list of processes
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        child_program.command(
            "serving.instance.child",
            descriptor,
            os.getpid(),
            shown,
            interpreter=plan.interpreter,
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(descriptor,),
        env=child_program.environment(plan.interpreter, plan.variables),
        start_new_session=True,
    )
    return ChildProcess(process, plan.name, plan.model, on_exit)
