"""Models that tests of the PyTorch backend share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories of models with PT2 archives of torch.export, by name."""
    from tests.serving.backends.pytorch import archives  # takes torch

    root = tmp_path_factory.mktemp("pt2")
    for name, archive in archives.KINDS.items():
        archive.export(root / name / "1")
    return root
