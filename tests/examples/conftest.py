"""The example models in a real server: those of the repository, as `fetch_models` leaves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.options import ControlMode, ServerOptions
from serving.server import ModelServer

REPOSITORY = Path(__file__).parents[2] / "examples" / "model_repository"


def skip_without_models() -> None:
    if not (REPOSITORY / "text_detector/1/model.onnx").is_file():
        pytest.skip("the demo models are not fetched: python -m examples.fetch_models")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """Nothing is loaded yet."""
    skip_without_models()
    options = ServerOptions((REPOSITORY,), model_control_mode=ControlMode.EXPLICIT)
    server = ModelServer(options)
    await server.start()
    yield server
    await server.stop()
