from __future__ import annotations

import logging
import sys

import pytest

from serving import logging_setup
from serving.logging_setup import LevelFilter, LogOptions, TritonFormatter, configure


def record(level: int, message: str, *args: object) -> logging.LogRecord:
    made = logging.LogRecord("serving.x", level, "f.py", 1, message, args, None)
    made.created = 1_700_000_000.25
    made.process = 7
    return made


def test_default_format_is_tritons():
    text = TritonFormatter().format(record(logging.WARNING, "model '%s'", "m"))
    assert text == "W1114 22:13:20.250000 7 serving.x] model 'm'"


def test_iso_format():
    text = TritonFormatter("ISO8601").format(record(logging.INFO, "hello"))
    assert text == "2023-11-14T22:13:20Z I 7 serving.x] hello"


def test_line_breaks_of_a_client_cannot_forge_a_record():
    text = TritonFormatter().format(record(logging.ERROR, "id %s", "x\nE1114 forged\x1b[0m"))
    assert "\n" not in text
    assert "\\nE1114 forged\\x1b" in text


def test_a_traceback_cannot_forge_a_record_either():
    """LOG-003."""
    made = record(logging.ERROR, "it failed")
    try:
        raise ValueError("of a client\nE1114 22:13:20.250000 7 serving.x] forged\x1b[0m")
    except ValueError:
        made.exc_info = sys.exc_info()

    lines = TritonFormatter().format(made).split("\n")

    assert lines[0].endswith("] it failed")
    assert all(line.startswith("    ") for line in lines[1:])
    assert "\x1b" not in "".join(lines)


def test_records_go_to_the_file_of_the_options(tmp_path):
    """LOG-001."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    try:
        configure(LogOptions(file=str(tmp_path / "log"), warning=False))
        logging.getLogger("serving.x").info("hello")
        logging.getLogger("serving.x").warning("left out")
        for handler in root.handlers:
            handler.close()
    finally:
        root.handlers, root.level = handlers, level
        logging_setup._configured = None

    assert (tmp_path / "log").read_text().rstrip().endswith("serving.x] hello")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (LogOptions(), [logging.INFO, logging.WARNING, logging.ERROR]),
        (LogOptions(verbose=1, info=False), [logging.DEBUG, logging.WARNING, logging.ERROR]),
        (LogOptions(warning=False, error=False), [logging.INFO]),
    ],
)
def test_each_level_has_its_own_switch(options: LogOptions, shown: list[int]):
    levels = [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR]
    level_filter = LevelFilter(options)
    assert [level for level in levels if level_filter.filter(record(level, ""))] == shown
