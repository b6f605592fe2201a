"""A log of its own for each model: what its processes print, log and raise, in files that rotate.

A handler of the logger `serving.models`, whose records name their model. Any thread.
"""

from __future__ import annotations

import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from urllib.parse import quote

LOGGER = "serving.models"
MAX_BYTES = 10_000_000
KEPT_FILES = 3
"""Older ones, beside the current one."""


class ModelLogs(logging.Handler):
    def __init__(self, directory: Path) -> None:
        """Raises: OSError when the directory cannot be made."""
        super().__init__()
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._files: dict[str, RotatingFileHandler] = {}
        self.setFormatter(_LineFormatter())

    @classmethod
    def attached(cls, directory: Path) -> ModelLogs:
        """In use until it is closed."""
        logs = cls(directory)
        logging.getLogger(LOGGER).addHandler(logs)
        return logs

    def path_of(self, model: str) -> Path:
        return self._directory / f"{quote(model, safe=' ')}.log"

    def emit(self, record: logging.LogRecord) -> None:
        model = getattr(record, "model", "")
        if not model:
            return
        file = self._files.get(model)
        if file is None:
            file = self._files[model] = RotatingFileHandler(
                self.path_of(model),
                maxBytes=MAX_BYTES,
                backupCount=KEPT_FILES,
                encoding="utf-8",
                errors="backslashreplace",
                delay=True,
            )
            file.setFormatter(self.formatter)
        file.handle(record)

    def close(self) -> None:
        logging.getLogger(LOGGER).removeHandler(self)
        for file in self._files.values():
            file.close()
        self._files.clear()
        super().close()


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        stream = getattr(record, "stream", "log")
        return f"{moment} {record.levelname:7} {stream:6} {record.getMessage()}"
