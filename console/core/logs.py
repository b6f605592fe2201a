"""The log: a JSON line for containers, and no tracebacks of what clients did wrong."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class RefusalsInOneLine(logging.Filter):
    """Django logs every 403 and 404 with a traceback; whoever guesses URLs would fill the disk."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            record.exc_info = None
        return True


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
