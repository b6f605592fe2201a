"""JSON log lines for workers in containers (CONCH_LOG_JSON); otherwise Celery's own format."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from celery.signals import after_setup_logger, after_setup_task_logger

_encoder = msgspec.json.Encoder()


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encoder.encode(line).decode()


def use_json() -> None:
    """Call before Celery sets up its logging."""
    after_setup_logger.connect(_set_formatter, weak=False)
    after_setup_task_logger.connect(_set_formatter, weak=False)


def _set_formatter(logger: logging.Logger, **ignored: Any) -> None:
    for handler in logger.handlers:
        handler.setFormatter(JsonFormatter())
