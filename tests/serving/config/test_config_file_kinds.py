"""What lies at config.pbtxt but is no text file: refused at once, and never read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from serving.config.check import check_model
from serving.config.pbtxt import MAX_CONFIG_BYTES, read_text
from serving.errors import InvalidArgumentError
from serving.repository import config_file


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m" / "1").mkdir(parents=True)
    return tmp_path / "m"


def test_a_pipe_is_refused_and_nobody_waits_for_a_writer(model: Path):
    os.mkfifo(model / "config.pbtxt")

    with pytest.raises(InvalidArgumentError, match=r"config\.pbtxt.*no regular file but a pipe"):
        config_file.read(model, None)
    assert any("no regular file" in item.message for item in check_model(model).findings)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_link_to_a_device_is_refused(model: Path, device: str):
    (model / "config.pbtxt").symlink_to(device)

    with pytest.raises(InvalidArgumentError, match="no regular file"):
        config_file.read(model, None)


def test_a_socket_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(model)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("config.pbtxt")

        with pytest.raises(InvalidArgumentError, match="no regular file"):
            config_file.read(model, None)


def test_a_huge_file_is_refused_by_its_size(model: Path):
    path = model / "config.pbtxt"
    path.touch()
    os.truncate(path, 2**40)  # sparse: reading it would take a terabyte of memory

    text, (finding,) = read_text(path)

    assert text is None
    assert f"has {2**40} bytes; a config may have {MAX_CONFIG_BYTES}" in finding.message
