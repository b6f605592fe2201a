"""Requests to the ports of the platforms: SageMaker's, Vertex AI's, and OpenAI's for the rest."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.fuzz.http_cases import MODELS, HttpCase, Json, infer_members, pack
from benchmarks.fuzz.models import CHURN
from benchmarks.fuzz.mutate import STRINGS, Mutator

PREDICT, HEALTH = "/predict", "/health"
ENVIRONMENT = {
    "AIP_PREDICT_ROUTE": PREDICT,
    "AIP_HEALTH_ROUTE": HEALTH,
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "identity",
}
OPTIONS = (
    "--allow-sagemaker=true",
    "--sagemaker-port=0",
    "--allow-vertex-ai=true",
    "--vertex-ai-port=0",
    "--vertex-ai-default-model=identity",
    "--openai-port=0",
)
_VENDORS = ("sagemaker", "vertex-ai")
_REDIRECTS = [
    *("/v2/health/live", "/v2", "v2/models/identity", "/v2/models/strings/infer", "/v2/logging"),
    *("/v2/repository/index", "/v2/repository/models/churn/unload", "/v2/trace/setting", "/"),
    *("/v1/models", "/v1/completions", "/v1/models/churn/unload", "http://a/v2", "", "?", "/%00"),
    *("/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/a/register", "/v2/nothing"),
]


def sagemaker(mutate: Mutator) -> HttpCase:
    random = mutate.random
    match random.randrange(8):
        case 0:
            case = HttpCase("sagemaker", "GET", random.choice(["/ping", "/models", "/models/a"]))
        case 1:
            return _changes_models(mutate)
        case 2:
            path = f"/models/{random.choice(['a', 'b', '%00', CHURN])}/invoke"
            case = _inference(mutate, "sagemaker", path)
            case.headers.append(("X-Amzn-SageMaker-Target-Model", random.choice(MODELS)))
        case _:
            case = _inference(mutate, "sagemaker", "/invocations")
    case.door = "SageMaker"
    return case


def _changes_models(mutate: Mutator) -> HttpCase:
    name = mutate.random.choice(["a", "b", "../x", "", CHURN])
    if mutate.chance(0.4):
        return HttpCase("sagemaker", "DELETE", f"/models/{name or 'a'}", door="SageMaker")
    here = str(Path(__file__).parent)
    url = mutate.random.choice(["/nowhere", "/dev/null", "/proc/self", here, "relative", ""])
    body = mutate.json_text({"model_name": name, "url": url})
    return HttpCase("sagemaker", "POST", "/models", body, door="SageMaker")


def vertex(mutate: Mutator) -> HttpCase:
    random = mutate.random
    if mutate.chance(0.1):
        case = HttpCase("vertex", "GET", random.choice([HEALTH, "/", "/v2"]))
    else:
        case = _inference(mutate, "vertex-ai", PREDICT)
    if mutate.chance(0.4):
        target = random.choice(_REDIRECTS)
        if mutate.chance(0.1):
            target = random.choice(STRINGS).encode("ascii", "ignore").decode()
            target = "".join(letter for letter in target if letter.isprintable())
        case.headers.append(("X-Vertex-Ai-Triton-Redirect", target))
    case.door = "Vertex AI"
    return case


def openai(mutate: Mutator) -> HttpCase:
    path = mutate.random.choice(
        ["/health/ready", "/metrics", "/v1/models", "/v1/models/words", "/"]
    )
    return HttpCase("openai", "GET", path, door="OpenAI")


def _inference(mutate: Mutator, vendor: str, path: str) -> HttpCase:
    """JSON, or JSON and tensors behind it as the content type says."""
    members: Json = infer_members(mutate, "identity")
    case = HttpCase(vendor, "POST", path)
    if mutate.chance(0.5):
        case.body = mutate.json_text(members)
        return case
    tensor = members["inputs"][0]
    raw = pack(tensor["datatype"], tensor.pop("data"))
    tensor["parameters"] = {"binary_data_size": len(raw)}
    text = json.dumps(members).encode() if mutate.chance(0.3) else mutate.json_text(members)
    length: object = len(text) if mutate.chance(0.8) else mutate.number(len(text))
    if mutate.chance(0.05):
        length = mutate.random.choice(["", "x", "1;2", "0x10", "-1", "9" * 40])
    if mutate.chance(0.1):
        vendor = mutate.random.choice(_VENDORS)
    kind = f"application/vnd.{vendor}-triton.binary+json;json-header-size={length}"
    case.body = text + (mutate.data(raw) if mutate.chance(0.2) else raw)
    case.headers.append(("Content-Type", kind))
    return case


MAKERS = (sagemaker, sagemaker, vertex, vertex, openai)
