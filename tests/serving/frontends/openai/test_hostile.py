"""Bodies that no client library sends: a client's mistake is never a 5xx, and has OpenAI's form."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

CHAT: dict[str, Any] = {"model": "writer", "messages": [{"role": "user", "content": "x"}]}
EMBED: dict[str, Any] = {"model": "letters", "input": "x"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", b""),
        ("chat/completions", b"[]"),
        ("chat/completions", b"{"),
        ("chat/completions", b"[" * 100_000),
        ("chat/completions", b'{"model": "writer", "messages": [{"role": "user", "content": 1}]}'),
        ("chat/completions", b'{"model": "\\ud800", "messages": [{"role": "user"}]}'),
        ("chat/completions", json.dumps({**CHAT, "model": ["writer"]}).encode()),
        ("chat/completions", json.dumps({**CHAT, "model": "../../etc"}).encode()),
        ("chat/completions", json.dumps({**CHAT, "messages": [{"role": []}]}).encode()),
        ("chat/completions", json.dumps({**CHAT, "messages": {"role": "user"}}).encode()),
        ("chat/completions", json.dumps({**CHAT, "max_tokens": 2**70}).encode()),
        ("chat/completions", json.dumps({**CHAT, "max_tokens": True}).encode()),
        ("chat/completions", json.dumps({**CHAT, "temperature": "hot"}).encode()),
        ("chat/completions", json.dumps({**CHAT, "stop": {"a": 1}}).encode()),
        ("chat/completions", json.dumps({**CHAT, "stream": "yes"}).encode()),
        ("chat/completions", json.dumps({**CHAT, "stream_options": 1, "stream": True}).encode()),
        ("completions", json.dumps({"model": "echo", "prompt": "x", "odd": [1]}).encode()),
        ("completions", json.dumps({"model": "echo", "prompt": "x", "odd": 2**70}).encode()),
        ("completions", json.dumps({"model": "echo", "prompt": "x", "priority": "a"}).encode()),
        ("completions", json.dumps({"model": "echo", "prompt": "x", "triton_x": 1}).encode()),
        ("embeddings", json.dumps({**EMBED, "input": ["x"] * 2049}).encode()),
        ("embeddings", json.dumps({**EMBED, "input": {"x": 1}}).encode()),
        ("embeddings", json.dumps({**EMBED, "encoding_format": ["float"]}).encode()),
        ("embeddings", json.dumps({**EMBED, "dimensions": -1}).encode()),
    ],
    ids=range(24),
)
def test_tool_065_a_mistake_is_the_clients(base_url: str, path: str, body: bytes) -> None:
    headers = {"authorization": "Bearer s3cret"}
    answer = httpx.post(f"{base_url}/{path}", content=body, headers=headers)

    assert answer.status_code in (400, 404), answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]


def test_a_number_of_the_callers_own_may_be_large(base_url: str) -> None:
    headers = {"authorization": "Bearer s3cret"}
    body = {"model": "writer", "prompt": "show", "odd": 2**70}
    answer = httpx.post(f"{base_url}/completions", json=body, headers=headers)

    assert json.loads(answer.json()["choices"][0]["text"])["odd"] == 2**70


def test_a_compressed_body_is_refused(base_url: str) -> None:
    headers = {"authorization": "Bearer s3cret", "content-encoding": "gzip"}
    answer = httpx.post(f"{base_url}/completions", content=b"x", headers=headers)

    assert (answer.status_code, "Content-Encoding" in answer.text) == (400, True)
