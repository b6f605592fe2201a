"""HTTP requests: a sensible one of some kind, then mutations of its body, head and framing."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.fuzz.models import CHURN
from benchmarks.fuzz.mutate import STRINGS, Mutator

Json = dict[str, Any]

_TENSORS: dict[str, tuple[str, list[int], list[Any]]] = {
    "identity": ("FP32", [1, 4], [1.0, 2.0, 3.5, -1.0]),
    "onnx": ("FP32", [1, 4], [1.0, 2.0, 3.0, 4.0]),
    "numbers": ("INT64", [2, 2], [1, 2, 3, 4]),
    "strings": ("BYTES", [2], ["one", "\u00e9"]),
    "half": ("FP16", [2], [1.0, 2.0]),
    "flags": ("BOOL", [2, 3], [True, False, True, True, False, False]),
    "labelled": ("FP32", [3], [0.1, 0.7, 0.2]),
    "sequence": ("FP32", [1, 2], [1.0, 2.0]),
    "ensemble": ("FP32", [1, 3], [1.0, 2.0, 3.0]),
}
MODELS = list(_TENSORS)
_METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "X" * 20]
_GETS = [
    *("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats", "/v2/logging"),
    *("/v2/trace/setting", "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status"),
    *("/v1/models", "/v1/models/words", "/metrics", "/", "/v2/"),
]
_OF_MODEL = ["", "/ready", "/config", "/stats", "/versions/1", "/versions/1/ready", "/versions/7"]
_HEADERS = [
    *("Inference-Header-Content-Length", "Content-Type", "Accept", "Accept-Encoding", "Expect"),
    *("Content-Encoding", "Connection", "Host", "triton-request-id", "traceparent", "Upgrade"),
    *("Cookie", "X-" + "y" * 300, "triton_grpc_error", "Range", "Authorization"),
]
_VALUES = [
    *("gzip", "deflate", "br", "identity", "gzip, deflate;q=0.5", "*;q=0", "100-continue"),
    *("close", "keep-alive", "upgrade", "h2c", "application/json", "chunked", "0", "-1", "1"),
    *("application/octet-stream", "99999999999999999999", "7", "0x10", "+1", "1_0", "\u00b2"),
    *("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a" * 5000, "\x01", ""),
]


@dataclass(slots=True)
class HttpCase:
    kind: str
    method: str
    path: str
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)
    data: bytes = b""
    """What goes over the wire."""
    is_whole: bool = True
    """The framing is right, so that exactly one answer must come."""
    door: str = "HTTP"
    """Which port it goes to."""


def make_case(
    mutate: Mutator, region_key: str, more: Sequence[Callable[[Mutator], HttpCase]] = ()
) -> HttpCase:
    """`more`: further kinds of requests, each as likely as one for metadata."""
    makers: list[Callable[[Mutator], HttpCase]] = []
    makers += [_infer] * 6 + [_binary] * 5 + [_generate] * 2 + [_completion] * 2
    makers += [_get] * 2 + [_repository] * 2 + [_settings]
    makers += more
    if mutate.chance(0.1):
        case = _memory(mutate, region_key)
    else:
        case = mutate.random.choice(makers)(mutate)
    if mutate.chance(0.15):
        _change_head(mutate, case)
    if mutate.chance(0.12):
        _encode(mutate, case)
    if mutate.chance(0.7):
        case.headers.append(("X-Fuzz", "key" if mutate.chance(0.9) else "kez"))
    _frame(mutate, case)
    return case


def infer_members(mutate: Mutator, model: str) -> Json:
    datatype, shape, data = _TENSORS[model]
    members: Json = {
        "inputs": [{"name": "INPUT0", "shape": shape, "datatype": datatype, "data": data}],
        "outputs": [{"name": "OUTPUT0"}],
    }
    if mutate.chance(0.3):
        members["id"] = "request"
    if mutate.chance(0.2):
        members["outputs"][0]["parameters"] = mutate.random.choice(
            [{"classification": 2}, {"binary_data": True}, {"binary_data": False}]
        )
    if model == "sequence" or mutate.chance(0.1):
        members["parameters"] = {
            "sequence_id": mutate.random.choice([7, 8, "nine"]),
            "sequence_start": mutate.chance(0.6),
            "sequence_end": mutate.chance(0.6),
        }
    return members


def _infer(mutate: Mutator) -> HttpCase:
    model = mutate.random.choice(MODELS)
    body = mutate.json_text(infer_members(mutate, model))
    return HttpCase("infer", "POST", f"/v2/models/{model}/infer", body)


def _binary(mutate: Mutator) -> HttpCase:
    model = mutate.random.choice(MODELS)
    members = infer_members(mutate, model)
    tensor = members["inputs"][0]
    raw = pack(tensor["datatype"], tensor.pop("data"))
    if mutate.chance(0.3):
        raw = mutate.data(raw)
    tensor["parameters"] = {"binary_data_size": len(raw)}
    if mutate.chance(0.1):
        return _raw(model, raw)
    if mutate.chance(0.3):
        members["parameters"] = {"binary_data_output": True}
    text = json.dumps(members).encode() if mutate.chance(0.3) else mutate.json_text(members)
    length = len(text) if mutate.chance(0.9) else mutate.number(len(text))
    headers = [("Inference-Header-Content-Length", str(length))]
    return HttpCase("binary", "POST", f"/v2/models/{model}/infer", text + raw, headers)


def _raw(model: str, raw: bytes) -> HttpCase:
    headers = [("Inference-Header-Content-Length", "0")]
    return HttpCase("raw", "POST", f"/v2/models/{model}/infer", raw, headers)


def pack(datatype: str, data: list[Any]) -> bytes:
    """As binary data of the protocol; FP16 and others by their size only."""
    if datatype == "BYTES":
        items = [text.encode() for text in data]
        return b"".join(struct.pack("<I", len(item)) + item for item in items)
    letter = {"FP32": "f", "INT64": "q", "FP16": "e", "BOOL": "?", "INT32": "i"}[datatype]
    return struct.pack(f"<{len(data)}{letter}", *data)


def _generate(mutate: Mutator) -> HttpCase:
    model = mutate.random.choice(["words", "words", "strings", "numbers", "flags", "repeat"])
    name = "text_input" if model == "words" else "INPUT0"
    value = "some text" if model == "words" else [1, 2]
    members = {name: value, "id": "g", "parameters": {"temperature": 0.5}, "stream": False}
    verb = mutate.random.choice(["generate", "generate_stream"])
    body = mutate.json_text(members)
    return HttpCase("generate", "POST", f"/v2/models/{model}/{verb}", body)


def _completion(mutate: Mutator) -> HttpCase:
    members: Json = {"model": "words", "max_tokens": 5, "temperature": 0.5, "stop": ["x"]}
    members["stream"] = mutate.chance(0.4)
    match mutate.random.randrange(3):
        case 0:
            path = "/v1/chat/completions"
            members["messages"] = [{"role": "user", "content": "hello"}]
        case 1:
            path, members["prompt"] = "/v1/completions", "hello"
        case _:
            path = "/v1/embeddings"
            members = {"model": "words", "input": ["a", "b"], "encoding_format": "float"}
    door = "OpenAI" if mutate.chance(0.5) else "HTTP"
    return HttpCase("openai", "POST", path, mutate.json_text(members), door=door)


def _get(mutate: Mutator) -> HttpCase:
    if mutate.chance(0.4):
        return HttpCase("read", "GET", mutate.random.choice(_GETS))
    model = mutate.random.choice([*MODELS, "nobody", "%00", "%ff", "x" * 300])
    return HttpCase("read", "GET", f"/v2/models/{model}{mutate.random.choice(_OF_MODEL)}")


def _repository(mutate: Mutator) -> HttpCase:
    if mutate.chance(0.4):
        body = mutate.json_text({"ready": mutate.chance(0.5)})
        return HttpCase("index", "POST", "/v2/repository/index", body)
    verb = mutate.random.choice(["load", "unload"])
    members: Json = {"parameters": {"unload_dependents": False}}
    if verb == "load" and mutate.chance(0.5):
        members["parameters"] = load_parameters(mutate)
    body = mutate.json_text(members) if mutate.chance(0.7) else b""
    model = (
        CHURN if mutate.chance(0.8) else mutate.random.choice(["nobody", "%2e%2e", ".", "a%2fb"])
    )
    start = "/v2/repository/models" if mutate.chance(0.8) else "/v1/models"
    return HttpCase("control", "POST", f"{start}/{model}/{verb}", body)


def load_parameters(mutate: Mutator) -> Json:
    """Files and a config, as a client may bring with a load."""
    tensor = {"data_type": "TYPE_FP32", "dims": [-1]}
    config: Json = {
        "name": CHURN,
        "backend": mutate.random.choice(["identity", "identity", "identity", "onnxruntime"]),
        "max_batch_size": 8,
        "input": [tensor | {"name": "INPUT0"}],
        "output": [tensor | {"name": "OUTPUT0"}],
        "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100},
        "version_policy": {"latest": {"num_versions": 1}},
    }
    text = mutate.json_text(config).decode("utf-8", "replace")
    content = base64.b64encode(mutate.data(b"\x08\x08\x12\x05conch")).decode()
    parameters = {"config": text}
    if mutate.chance(0.5):
        parameters[mutate.random.choice(["file:1/model.onnx", "file:1/x", "file:../x"])] = content
    return parameters


def _settings(mutate: Mutator) -> HttpCase:
    if mutate.chance(0.4):
        members: Json = {"log_verbose_level": 0, "log_info": True, "log_format": "default"}
        return HttpCase("logging", "POST", "/v2/logging", mutate.json_text(members))
    model = mutate.random.choice(["", "/models/identity", "/models/nobody"])
    members = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "5"}
    members |= {"log_frequency": "3"}
    return HttpCase("trace", "POST", f"/v2{model}/trace/setting", mutate.json_text(members))


def _memory(mutate: Mutator, region_key: str) -> HttpCase:
    name = mutate.random.choice(["a", "b", "c"])
    kind = "system" if mutate.chance(0.8) else "cuda"
    base = f"/v2/{kind}sharedmemory/region/{name}"
    match mutate.random.randrange(4):
        case 0:
            members: Json = {"key": region_key, "offset": 0, "byte_size": 256}
            if kind == "cuda":
                members = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 256}
            return HttpCase("memory", "POST", f"{base}/register", mutate.json_text(members))
        case 1 if mutate.chance(0.4):
            path = mutate.random.choice([base, f"/v2/{kind}sharedmemory"])
            return HttpCase("memory", "POST", f"{path}/unregister")
        case 2:
            return HttpCase("memory", "GET", f"{base}/status")
        case _:
            return _infer_in_memory(mutate, name)


def _infer_in_memory(mutate: Mutator, region: str) -> HttpCase:
    model = mutate.random.choice(["identity", "numbers", "strings"])
    members = infer_members(mutate, model)
    tensor = members["inputs"][0]
    size = len(pack(tensor["datatype"], tensor.pop("data")))
    place = {"shared_memory_region": region, "shared_memory_byte_size": size}
    tensor["parameters"] = place
    if mutate.chance(0.7):
        members["outputs"][0]["parameters"] = place | {"shared_memory_offset": 64}
    body = mutate.json_text(members) if mutate.chance(0.8) else json.dumps(members).encode()
    return HttpCase("memory", "POST", f"/v2/models/{model}/infer", body)


# --- head and framing ----------------------------------------------------------------------


def _change_head(mutate: Mutator, case: HttpCase) -> None:
    random = mutate.random
    match random.randrange(5):
        case 0:
            case.method = random.choice(_METHODS)
        case 1:
            path = mutate.data(case.path.encode()).decode("latin-1")
            case.path = "".join(letter for letter in path if letter > " ") or "/"
            case.is_whole = case.path.isascii() and case.path.startswith("/")
        case 2:
            junk = random.choice(STRINGS).encode("utf-8", "replace")
            quoted = "".join(f"%{byte:02x}" for byte in junk[:60])
            parts = case.path.split("/")
            parts[random.randrange(1, len(parts))] = quoted
            case.path = "/".join(parts) + random.choice(["", "?a=b", "?"])
        case _:
            for _ in range(random.choice([1, 1, 2, 40])):
                name, value = random.choice(_HEADERS), random.choice(_VALUES)
                case.headers.append((name, value))
                case.is_whole = case.is_whole and "\x01" not in value and name != "Upgrade"


def _encode(mutate: Mutator, case: HttpCase) -> None:
    coding = mutate.random.choice(["gzip", "deflate", "gzip"])
    packed = gzip.compress(case.body, 1) if coding == "gzip" else zlib.compress(case.body, 1)
    case.body = packed if mutate.chance(0.7) else mutate.data(packed)
    if mutate.chance(0.1):
        coding = mutate.random.choice(["br", "gzip, gzip", "x", ""])
    case.headers.append(("Content-Encoding", coding))


def _frame(mutate: Mutator, case: HttpCase) -> None:
    lines = [f"{case.method} {case.path} HTTP/1.1"]
    if mutate.chance(0.02):
        lines[0] = lines[0].replace("1.1", mutate.random.choice(["1.0", "0.9", "2.0", "9", ""]))
        case.is_whole = False
    if not any(name == "Host" for name, _ in case.headers):
        lines.append("Host: fuzz")
    lines += [f"{name}: {value}" for name, value in case.headers]
    body = case.body
    if mutate.chance(0.1):
        lines.append("Transfer-Encoding: chunked")
        body = _chunked(mutate, body)
    elif body or case.method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    case.data = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body
    if mutate.chance(0.05):
        case.data = mutate.data(case.data)
        case.is_whole = False


def _chunked(mutate: Mutator, body: bytes) -> bytes:
    out, at = b"", 0
    while at < len(body):
        size = mutate.random.choice([1, 3, 100, 5000])
        piece = body[at : at + size]
        extension = b";x=y" if mutate.chance(0.1) else b""
        out += b"%x%b\r\n%b\r\n" % (len(piece), extension, piece)
        at += size
    return out + b"0\r\n\r\n"
