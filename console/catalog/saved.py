"""The config of a model as it lies on disk: its text, parsed, and checked."""

from __future__ import annotations

from console.catalog import config_view
from console.catalog.config_view import ConfigView
from serving.config import pbtxt
from serving.config.protobuf import pb
from serving.repository.layout import ModelDirectory


def saved_text(directory: ModelDirectory) -> str | None:
    """config.pbtxt as it lies on disk; None where there is none."""
    if directory.config_path is None:
        return None
    try:
        return directory.config_path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def saved_config(directory: ModelDirectory) -> pb.ModelConfig | None:
    """The config on disk as it parses; None where there is none or it does not."""
    text = saved_text(directory)
    return None if text is None else pbtxt.parse(text).config


def view_of_saved(directory: ModelDirectory) -> tuple[ConfigView, pb.ModelConfig | None]:
    """(the check of what is on disk, the effective config or None)."""
    text = saved_text(directory)
    view = config_view.inspect(directory.path, text=text, saved=text or "")
    return view, view.effective_config
