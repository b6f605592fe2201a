"""Builds engines out of ONNX models, one after the other, each in a process of its own.

Orders come from Celery's threads and return at once; one thread of this object carries them out,
reads what the process tells, and moves the result into the repository in one step: a new model as
one rename of its directory, a new version as one rename of its folder. Nobody ever sees half of it.
Source: spec TRT-01.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

import msgspec

from serving import child_program
from serving.config.pbtxt import parse, read_text
from serving.config.protobuf import pb
from serving.config.validate_model import escapes
from serving.errors import InvalidArgumentError, ServingError
from workers.engine_messages import EngineOrder, EngineProgress, order_problem
from workers.engine_process import CONFIG, PLAN, EngineJob, Line

logger = logging.getLogger(__name__)

HIDDEN_FOLDER = ".conch"
TELL_EVERY_S = 0.3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,127}")
_LAST_WORDS = 2000
_decode_line = msgspec.json.Decoder(Line).decode


class EngineBuilds:
    """All builds of one worker."""

    def __init__(
        self,
        worker_id: str,
        repositories: Sequence[Path | str],
        tell: Callable[[EngineProgress], None],
    ) -> None:
        """`tell` gets news from any thread, and must not wait."""
        self._worker_id = worker_id
        self._roots = [item for item in repositories if isinstance(item, Path)]
        self._tell = tell
        self._orders: SimpleQueue[EngineOrder | None] = SimpleQueue()
        self._open: set[str] = set()
        """Builds that wait or run."""
        self._cancelled: set[str] = set()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._running = ""
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"<EngineBuilds running={self._running or None}>"

    def start(self, order: EngineOrder) -> None:
        """Put it in the queue; how it goes is told."""
        self._report(order, "queued")
        with self._lock:
            self._open.add(order.build_id)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="engine-builds", daemon=True
                )
                self._thread.start()
        self._orders.put(order)

    def cancel(self, build_id: str) -> None:
        """A build that waits is not begun; one that runs is stopped; one that is over stays so."""
        with self._lock:
            self._cancelled.update(self._open & {build_id})
            if self._running == build_id and self._process is not None:
                self._process.terminate()

    def refuse(self, order: EngineOrder, error: str) -> None:
        """An order that is not carried out: tell whoever waits for it."""
        self._report(order, "failed", error=error)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Give up what runs and what waits; both are told."""
        with self._lock:
            self._is_stopping = True
            thread = self._thread
            if self._process is not None:
                self._process.terminate()
        if thread is not None:
            self._orders.put(None)
            thread.join(timeout_s)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                self._carry_out(order)
            except Exception as error:
                logger.exception("an engine build failed unexpectedly build=%s", order.build_id)
                self._report(order, "failed", error=f"unexpected {type(error).__name__}: {error}")

    def _carry_out(self, order: EngineOrder) -> None:
        with self._lock:
            self._running = order.build_id
        try:
            self._check_wanted(order)
            self._build(order)
        except ServingError as error:
            self._report_failure(order, error.message)
        except OSError as error:
            self._report_failure(order, f"{error.filename or 'a file'}: {error.strerror}")
        finally:
            with self._lock:
                self._running = ""
                self._open.discard(order.build_id)
                self._cancelled.discard(order.build_id)

    def _check_wanted(self, order: EngineOrder) -> None:
        """Raises: InvalidArgumentError for a build that was given up meanwhile."""
        if order.build_id in self._cancelled or self._is_stopping:
            raise InvalidArgumentError("the build was given up")

    def _report_failure(self, order: EngineOrder, error: str) -> None:
        """A process that was ended has its own words for it; what counts is who ended it."""
        if order.build_id in self._cancelled:
            self._report(order, "cancelled")
        elif self._is_stopping:
            self._report(order, "failed", error="the worker stopped before the build was done")
        else:
            logger.warning("engine build failed build=%s: %s", order.build_id, error)
            self._report(order, "failed", error=error)

    def _build(self, order: EngineOrder) -> None:
        problem = order_problem(order)
        if problem:
            raise InvalidArgumentError(problem)
        root, onnx = self._source(order)
        check_target(root, order)
        folder = root / HIDDEN_FOLDER / "engines" / order.build_id
        folder.mkdir(parents=True, exist_ok=True)
        self._report(order, "running", phase="Starting the builder")
        try:
            caches = root / HIDDEN_FOLDER / "timing_caches"
            done = self._run(order, EngineJob(order, str(onnx), str(folder), str(caches)))
            self._check_wanted(order)
            version = publish(root / order.target, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        logger.info(
            "engine built build=%s model=%s target=%s version=%d",
            order.build_id, order.model, order.target, version,
        )  # fmt: skip
        self._report(
            order,
            "succeeded",
            fraction=1.0,
            version=version,
            engine_bytes=done.engine_bytes,
            builder=done.builder,
        )

    def _source(self, order: EngineOrder) -> tuple[Path, Path]:
        """The repository and the ONNX file. Raises: InvalidArgumentError."""
        for name in (order.model, order.target):
            if not _NAME.fullmatch(name):
                raise InvalidArgumentError(f"'{name}' cannot be the name of a model")
        for root in self._roots:
            directory = root / order.model
            if directory.is_dir():
                return root, onnx_file(directory, order.version)
        where = "" if self._roots else ": engines are built in repositories on the worker's disk"
        raise InvalidArgumentError(f"this worker has no model '{order.model}' on its disk{where}")

    def _run(self, order: EngineOrder, job: EngineJob) -> Line:
        """The last word of the process. Raises: InvalidArgumentError with its reason."""
        reader, writer = os.pipe()
        with open(reader, "rb") as news, contextlib.ExitStack() as closing:
            closing.callback(os.close, writer)
            command = [sys.executable, "-m", "workers.engine_process"]
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, str(writer), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(writer,),
                env=child_program.environment(),
            )
            closing.close()
            with process:
                with self._lock:
                    self._process = process
                    if self._is_stopping or order.build_id in self._cancelled:
                        process.terminate()
                words = _Words(process)
                last = self._follow(order, process, job, news)
                return_code = process.wait()
                # Before the pipe is closed, which the thread still reads.
                last_words = words.last()
                with self._lock:
                    self._process = None
            if last is not None and not last.error:
                return last
            if last is not None:
                raise InvalidArgumentError(last.error)
            raise InvalidArgumentError(
                f"the build process {child_program.describe_exit(return_code)}{last_words}"
            )

    def _follow(
        self, order: EngineOrder, process: subprocess.Popen[bytes], job: EngineJob, news: object
    ) -> Line | None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(msgspec.json.encode(job))
        told_at, last = 0.0, None
        for raw in news:  # type: ignore[attr-defined]
            line = _decode_line(raw)
            if line.is_last:
                last = line
            elif time.monotonic() - told_at >= TELL_EVERY_S:
                told_at = time.monotonic()
                self._report(order, "running", phase=line.phase, fraction=line.fraction)
        return last

    def _report(
        self,
        order: EngineOrder,
        state: str,
        *,
        phase: str = "",
        fraction: float = 0.0,
        error: str = "",
        version: int = 0,
        engine_bytes: int = 0,
        builder: str = "",
    ) -> None:
        self._tell(
            EngineProgress(
                order.build_id, self._worker_id, order.model, order.target, state, time.time(),
                phase, fraction, error, version, engine_bytes, builder,
            )
        )  # fmt: skip


class _Words:
    """The end of what a process prints to its standard error, read by a thread of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._text = b""
        self._thread = threading.Thread(target=self._read, name="engine-words", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._text = (self._text + line)[-_LAST_WORDS:]

    def last(self) -> str:
        self._thread.join(1)
        lines = self._text.decode(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""


def onnx_file(directory: Path, version: int) -> Path:
    """The ONNX file of a model version. Raises: InvalidArgumentError."""
    config = _config(directory)
    name = "model.onnx" if config is None else config.default_model_filename or "model.onnx"
    if escapes(name):
        raise InvalidArgumentError(f"default_model_filename '{name}' lies outside the model")
    path = directory / str(version) / name
    if path.is_dir():
        path = path / name
    if not path.is_file():
        raise InvalidArgumentError(
            f"'{directory.name}' has no file {version}/{name}: engines are built out of ONNX files"
        )
    return path


def _config(directory: Path) -> pb.ModelConfig | None:
    """What config.pbtxt says; None where there is none that can be read."""
    path = directory / CONFIG
    text = read_text(path)[0] if path.is_file() else None
    return None if text is None else parse(text).config


def check_target(root: Path, order: EngineOrder) -> None:
    """Raises: InvalidArgumentError for a model that is there and is none of TensorRT."""
    directory = root / order.target
    if order.target == order.model:
        raise InvalidArgumentError(
            f"the engine cannot become a version of '{order.model}' itself, whose versions are "
            "ONNX files: give another name"
        )
    if not directory.is_dir():
        return
    config = _config(directory)
    words = set() if config is None else {config.backend, config.platform}
    if not words & {"tensorrt", "tensorrt_plan"} and not any(directory.glob(f"*/{PLAN}")):
        raise InvalidArgumentError(
            f"there is a model '{order.target}' already, and it is none of TensorRT: give another "
            "name"
        )


def publish(directory: Path, folder: Path) -> int:
    """Move the engine of `folder` into the model; its config too where the model is new.

    Returns the version, one more than the newest. Raises: OSError.
    """
    while True:
        version = next_version(directory)
        staged = folder / "model"
        shutil.rmtree(staged, ignore_errors=True)
        (staged / str(version)).mkdir(parents=True)
        os.link(folder / PLAN, staged / str(version) / PLAN)
        os.link(folder / CONFIG, staged / CONFIG)
        is_new = not directory.is_dir()
        source = staged if is_new else staged / str(version)
        try:
            os.rename(source, directory if is_new else directory / str(version))
        except OSError:
            # Somebody else was faster: then there is a model, or a version, more than before.
            if next_version(directory) == version and directory.is_dir() is not is_new:
                raise
            continue
        return version


def next_version(directory: Path) -> int:
    numbers = [
        int(path.name)
        for path in directory.glob("[0-9]*")
        if path.name.isdecimal() and path.is_dir()
    ]
    return max(numbers, default=0) + 1
