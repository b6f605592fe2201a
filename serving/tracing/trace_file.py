"""Writes traces to files as Triton does: JSON arrays that grow while the server runs.

One thread of its own does all of the writing, so that no request waits for a disk. `put`, `rotate`
and `close` belong to the loop thread. Source: spec TRC-003, TRC-004.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import orjson

from serving.tracing.trace import Trace

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""Traces that may wait for the disk; further ones are lost, which the log says."""


class TraceFile:
    """The file `path`, or with a frequency the files `path`.0, `path`.1, ..."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._work: SimpleQueue[Trace | int | None] = SimpleQueue()
        """Traces; a number is a new frequency, with which a new file begins; None ends."""
        self._thread: threading.Thread | None = None
        self._frequency = 0
        self._lost = 0
        self._file: IO[bytes] | None = None
        self._in_file = self._traces = 0
        self._next_index = 0
        self._is_begun = False
        """The file without a number holds traces of this run already."""
        self._has_failed = False

    def __repr__(self) -> str:
        return f"<TraceFile {self._path} waiting={self._work.qsize()} lost={self._lost}>"

    def put(self, trace: Trace) -> None:
        if self._work.qsize() >= MOST_WAITING:
            self._lost += 1
            if self._lost & (self._lost - 1) == 0:  # 1, 2, 4, ...: not a line for each
                logger.warning("%d traces are lost: %s is too slow", self._lost, self._path)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
            self._thread.start()
        self._work.put(trace)

    def rotate(self, frequency: int) -> None:
        """Traces a file, from now on; another number begins a new file."""
        self._work.put(frequency)

    def close(self) -> None:
        """Blocks until everything is on the disk."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            try:
                if isinstance(item, int):
                    if item != self._frequency:
                        self._end_file()
                    self._frequency = item
                else:
                    self._write(item)
            except OSError as error:
                if not self._has_failed:
                    logger.error("traces cannot be written to %s: %s", self._path, error.strerror)
                self._has_failed = True
                self._file = None
        try:
            self._end_file()
        except OSError as error:
            logger.error("traces cannot be written to %s: %s", self._path, error.strerror)

    def _write(self, trace: Trace) -> None:
        if self._file is None:
            self._file = self._open()
        for entry in trace.as_json():
            self._file.write(b",\n" if self._in_file else b"[")
            self._file.write(orjson.dumps(entry))
            self._in_file += 1
        if self._frequency:
            self._traces += 1
            if self._traces >= self._frequency:
                self._end_file()

    def _open(self) -> IO[bytes]:
        self._in_file = self._traces = 0
        path = self._path
        if self._frequency or self._is_begun:
            path += f".{self._next_index}"
            self._next_index += 1
        else:
            self._is_begun = True
        return Path(path).open("wb")

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.write(b"]\n")
