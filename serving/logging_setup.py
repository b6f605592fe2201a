"""Logging as tritonserver's options ask for it: which levels, which format, where to.

Text that came from a client is escaped, so that a line break in it cannot forge a record.
Source: spec LOG-001, LOG-003.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from logging.handlers import WatchedFileHandler

_LETTERS = {logging.DEBUG: "V", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}


@dataclass(frozen=True, slots=True)
class LogOptions:
    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True
    format: str = "default"
    """default or ISO8601."""
    file: str = ""
    """Empty: standard error."""


_configured: LogOptions | None = None


class LevelFilter(logging.Filter):
    """Each level has its own switch, as in tritonserver."""

    def __init__(self, options: LogOptions) -> None:
        super().__init__()
        self._options = options

    def filter(self, record: logging.LogRecord) -> bool:
        options = self._options
        if record.levelno >= logging.ERROR:
            return options.error
        if record.levelno >= logging.WARNING:
            return options.warning
        if record.levelno >= logging.INFO:
            return options.info
        return options.verbose > 0


class TritonFormatter(logging.Formatter):
    def __init__(self, log_format: str = "default") -> None:
        super().__init__()
        self._is_iso = log_format == "ISO8601"

    def format(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "E" if record.levelno > logging.ERROR else "I")
        message = _escaped(record.getMessage())
        if record.exc_info:
            # Readable, and no line of it can pass for a record.
            for line in self.formatException(record.exc_info).split("\n"):
                message += "\n    " + _escaped(line)
        moment = time.gmtime(record.created)
        if self._is_iso:
            head = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment) + f" {letter}"
        else:
            micros = int(record.created % 1 * 1e6)
            head = letter + time.strftime("%m%d %H:%M:%S", moment) + f".{micros:06d}"
        return f"{head} {record.process} {record.name}] {message}"


def configure(options: LogOptions) -> None:
    """Send the records of this process where they belong. Replaces what was configured before.

    A file is opened anew when somebody moves it away, as logrotate does.
    Raises: OSError when the file cannot be opened; nothing has changed then.
    """
    global _configured
    handler: logging.Handler = logging.StreamHandler()
    if options.file:
        handler = WatchedFileHandler(options.file, encoding="utf-8")
    _configured = options
    handler.setFormatter(TritonFormatter(options.format))
    handler.addFilter(LevelFilter(options))
    root = logging.getLogger()
    for before in root.handlers:
        before.close()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if options.verbose > 0 else logging.INFO)


def configured() -> LogOptions | None:
    """What holds now; None where the process that hosts the server has logging of its own."""
    return _configured


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
