"""Send recorded requests to a running server and compare each answer with the recorded one.

    python -m tests.conformance.replay 127.0.0.1:8000 [--only TEXT] [--show N]

prints every difference and a score. A case holds the request as bytes and, of the answer, what must
hold: one of some statuses, headers, the members of the JSON body (more are allowed), the bytes
behind it, or for an error the names and numbers that its text must mention. The wording of errors
is never compared. The server must have been started afresh with `test_replay.server_arguments`, and
the models must have been loaded.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import math
import socket
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
_TIMEOUT_S = 30.0
_TOLERANCE = 1e-6
_SERVER_NAMES = {"/name": "triton", "/version": "2.51.0"}
"""Members of the server metadata that name the recorded server itself."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Score:
    passed: list[str] = field(default_factory=list)
    differences: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        total = len(self.passed) + len(self.differences)
        return f"{len(self.passed)} of {total} recorded answers match"


def load_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / "cases.json").read_text(encoding="utf-8"))
    return cases


def replay(cases: Iterable[dict[str, Any]], host: str, port: int) -> Score:
    score = Score()
    for case in cases:
        try:
            answer = send(case["request"], host, port)
        except (OSError, http.client.HTTPException) as error:
            difference = f"no answer: {error!r}"
        else:
            difference = next(compare(case["expect"], answer), "")
        if difference:
            score.differences[case["name"]] = difference
        else:
            score.passed.append(case["name"])
    return score


def send(request: dict[str, Any], host: str, port: int) -> Answer:
    """One request on a connection of its own, byte for byte as recorded."""
    if "body_hex" in request:
        body = bytes.fromhex(request["body_hex"])
    else:
        body = request.get("body", "").encode()
    headers = {"Host": f"{host}:{port}", "Connection": "close"} | request["headers"]
    lines = [f"{request['method']} {request['path']} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(head + body)
        response = http.client.HTTPResponse(connection, method=request["method"])
        response.begin()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, received, response.read())


def compare(expect: dict[str, Any], answer: Answer) -> Iterator[str]:
    """Yield the differences, the telling ones first."""
    if answer.status not in expect["status"]:
        wanted = " or ".join(map(str, expect["status"]))
        yield f"status {answer.status} instead of {wanted}: {answer.body[:200]!r}"
    for name, value in expect.get("headers", {}).items():
        got = answer.headers.get(name, "")
        if _media_type(got) != _media_type(value):
            yield f"header {name} is {got!r} instead of {value!r}"
    body = _decoded(answer)
    tail = b""
    if expect.get("binary"):
        size = answer.headers.get("inference-header-content-length", "")
        if not size.isdigit():
            yield "the header Inference-Header-Content-Length is missing"
            return
        body, tail = body[: int(size)], body[int(size) :]
    if "binary_hex" in expect and tail.hex() != expect["binary_hex"]:
        yield f"binary data is {tail.hex()[:80]} instead of {expect['binary_hex'][:80]}"
    if "sse_text" in expect:
        yield from _members(_events(expect["sse_text"]), _events(body.decode()), "events")
    elif "json" in expect or "body_keys" in expect:
        yield from _compare_json(expect, body)


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip()


def _decoded(answer: Answer) -> bytes:
    coding = answer.headers.get("content-encoding", "")
    if coding == "gzip":
        return gzip.decompress(answer.body)
    return zlib.decompress(answer.body) if coding == "deflate" else answer.body


def _events(text: str) -> list[Any]:
    lines = text.replace("\r", "").split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def _compare_json(expect: dict[str, Any], body: bytes) -> Iterator[str]:
    try:
        got = json.loads(body)
    except ValueError:
        yield f"the body is no JSON: {body[:120]!r}"
        return
    if "json" in expect:
        yield from _members(expect["json"], got, "")
    elif sorted(got) != expect["body_keys"]:
        yield f"the body has the members {sorted(got)} instead of {expect['body_keys']}"
    else:
        text = str(got.get("error"))
        missing = [name for name in expect["names"] if name not in text]
        if missing:
            yield f"the error does not mention {', '.join(missing)}: {text[:300]}"


def _members(want: Any, got: Any, place: str) -> Iterator[str]:
    """Everything in `want` must be in `got`, at the same place and equal."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name, value in want.items():
            if name in got:
                yield from _members(value, got[name], f"{place}/{name}")
            else:
                yield f"{place}/{name} is missing"
    elif place == "/extensions":
        missing = sorted(set(want) - set(got or ()))
        if missing:
            yield f"{place} lacks {', '.join(missing)}"
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{place} has {len(got)} items instead of {len(want)}"
        for index, (left, right) in enumerate(zip(want, got, strict=False)):
            yield from _members(left, right, f"{place}[{index}]")
    elif not _equal(want, got) and want != _SERVER_NAMES.get(place):
        yield f"{place or 'the body'} is {got!r:.100} instead of {want!r:.100}"


def _equal(want: Any, got: Any) -> bool:
    if _is_number(want) and _is_number(got):
        if math.isnan(want):
            return math.isnan(got)
        return bool(want == got or abs(want - got) <= _TOLERANCE * max(1.0, abs(want)))
    return bool(want == got)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.replay")
    parser.add_argument("address", help="host:port of the server's HTTP endpoint")
    parser.add_argument("--only", default="", help="replay the cases whose name contains this")
    parser.add_argument("--show", type=int, default=1000, help="differences to print at most")
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    cases = [case for case in load_cases() if options.only in case["name"]]
    score = replay(cases, host, int(port))
    for name, difference in list(score.differences.items())[: options.show]:
        sys.stdout.write(f"{name}: {difference}\n")
    sys.stdout.write(f"{score}\n")
    return 1 if score.differences else 0


if __name__ == "__main__":
    sys.exit(main())
