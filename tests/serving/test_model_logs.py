"""What a model prints and logs, in a file of its own."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from serving import model_logs
from serving.model_logs import LOGGER, ModelLogs
from tests.serving.backends.python.serving_models import ask_server, served, source_of


async def test_each_model_has_a_log_of_what_it_prints_logs_and_raises(tmp_path: Path):
    body = """
print("printed")
pb_utils.Logger.log_warn("logged")
raise ValueError("raised")
"""
    import_error = "import sys\nprint('to stderr', file=sys.stderr, flush=True)\n"
    directory = tmp_path / "logs"
    models = {"a": source_of(body), "b": import_error + source_of("return [ok()]")}
    async with served(tmp_path / "models", models, model_log_directory=directory) as server:
        await ask_server(server, "b")
        with pytest.raises(Exception, match="raised"):
            await ask_server(server, "a")

    first, second = ((directory / f"{name}.log").read_text() for name in "ab")
    assert "INFO    stdout a_0: printed\n" in first.replace("a_0_0", "a_0")
    assert "WARNING log    a_0: logged\n" in first.replace("a_0_0", "a_0")
    assert "ValueError: raised" in first
    assert "to stderr" not in first
    assert "stderr b_0: to stderr\n" in second.replace("b_0_0", "b_0")


def test_a_log_rotates_and_has_a_safe_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_logs, "MAX_BYTES", 1000)
    logs = ModelLogs.attached(tmp_path)
    logger = logging.getLogger(LOGGER)
    try:
        for number in range(100):
            logger.warning("line %d \udcff", number, extra={"model": "../a/b c"})
        logger.warning("of no model")
    finally:
        logs.close()

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["..%2Fa%2Fb c.log", *(f"..%2Fa%2Fb c.log.{n}" for n in (1, 2, 3))]
    assert (tmp_path / names[0]).stat().st_size <= 1000
    assert "line 99" in (tmp_path / names[0]).read_text()
