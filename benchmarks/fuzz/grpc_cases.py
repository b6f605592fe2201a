"""gRPC requests: a sensible message of some method, its fields or its bytes changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as pb

from benchmarks.fuzz.http_cases import MODELS, infer_members, load_parameters, pack
from benchmarks.fuzz.models import CHURN
from benchmarks.fuzz.mutate import Mutator

SERVICE = "/inference.GRPCInferenceService/"
_NAMED = ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics")
_EMPTY = ("ServerLive", "ServerReady", "ServerMetadata")
_CONTENTS = {"FP32": "fp32_contents", "INT64": "int64_contents", "BOOL": "bool_contents"}


@dataclass(slots=True)
class GrpcCase:
    kind: str
    method: str
    messages: list[bytes]
    metadata: list[tuple[str, str | bytes]] = field(default_factory=list)
    is_compressed: bool = False

    @property
    def is_stream(self) -> bool:
        return self.method.endswith("ModelStreamInfer")


def make_case(mutate: Mutator, region_key: str) -> GrpcCase:
    random = mutate.random
    makers: list[Callable[[Mutator], GrpcCase]] = []
    makers += [_infer] * 8 + [_stream] * 4
    makers += [_read] * 2 + [_repository] * 2 + [_settings]
    case = _memory(mutate, region_key) if mutate.chance(0.1) else random.choice(makers)(mutate)
    if mutate.chance(0.15):
        case.messages = [mutate.data(message) for message in case.messages]
    if mutate.chance(0.01):
        case.method = random.choice([SERVICE + "Nothing", "/a/b", "/grpc.health.v1.Health/Check"])
    if mutate.chance(0.1):
        case.metadata = [(f"x-{number}", "v" * 100) for number in range(random.choice([1, 20]))]
        odd: list[tuple[str, str | bytes]] = [("traceparent", "00-x"), ("junk-bin", b"\xff\0")]
        case.metadata.append(random.choice(odd))
    if mutate.chance(0.7):
        case.metadata.append(("triton-grpc-protocol-x-fuzz", "key" if mutate.chance(0.9) else "k"))
    case.is_compressed = mutate.chance(0.05)
    return case


def _case(mutate: Mutator, kind: str, method: str, message: Message) -> GrpcCase:
    if mutate.chance(0.85):
        mutate.message(message)
    return GrpcCase(kind, SERVICE + method, [message.SerializeToString()])


def _infer(mutate: Mutator) -> GrpcCase:
    return _case(mutate, "infer", "ModelInfer", _infer_message(mutate))


def _infer_message(mutate: Mutator) -> Any:
    model = mutate.random.choice(MODELS)
    members = infer_members(mutate, model)
    if mutate.chance(0.1):
        members = mutate.json_value(members)
    message = pb.ModelInferRequest(model_name=model, id="fuzz")
    tensor = infer_members(mutate, model)["inputs"][0]
    target = message.inputs.add(name="INPUT0", datatype=tensor["datatype"], shape=tensor["shape"])
    contents = _CONTENTS.get(tensor["datatype"])
    if contents is not None and mutate.chance(0.5):
        getattr(target.contents, contents).extend(tensor["data"])
    else:
        message.raw_input_contents.append(pack(tensor["datatype"], tensor["data"]))
    if mutate.chance(0.5):
        message.outputs.add(name="OUTPUT0")
    _set_parameters(message.parameters, members)
    return message


def _set_parameters(target: Any, members: Any) -> None:
    """Those of the HTTP request that have a protobuf form."""
    parameters = members.get("parameters") if isinstance(members, dict) else None
    if not isinstance(parameters, dict):
        return
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int) and abs(value) < 2**63:
            target[name].int64_param = value
        elif isinstance(value, str):
            target[name].string_param = value.encode("utf-8", "replace").decode()


def _stream(mutate: Mutator) -> GrpcCase:
    messages = []
    for _ in range(mutate.random.choice([0, 1, 1, 2, 4])):
        message = _infer_message(mutate)
        if mutate.chance(0.3):
            message = _repeat_message()
        if mutate.chance(0.6):
            mutate.message(message)
        messages.append(message.SerializeToString())
    return GrpcCase("stream", SERVICE + "ModelStreamInfer", messages)


def _repeat_message() -> Any:
    message = pb.ModelInferRequest(model_name="repeat")
    message.inputs.add(name="INPUT0", datatype="INT32", shape=[3])
    message.raw_input_contents.append(pack("INT32", [1, 2, 3]))
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return message


def _read(mutate: Mutator) -> GrpcCase:
    if mutate.chance(0.2):
        method = mutate.random.choice(_EMPTY)
        return _case(mutate, "read", method, getattr(pb, f"{method}Request")())
    method = mutate.random.choice(_NAMED)
    name = mutate.random.choice([*MODELS, "nobody"])
    return _case(mutate, "read", method, getattr(pb, f"{method}Request")(name=name))


def _repository(mutate: Mutator) -> GrpcCase:
    match mutate.random.randrange(3):
        case 0:
            return _case(mutate, "index", "RepositoryIndex", pb.RepositoryIndexRequest())
        case 1:
            unload = pb.RepositoryModelUnloadRequest(model_name=CHURN)
            unload.parameters["unload_dependents"].bool_param = False
            return _case(mutate, "control", "RepositoryModelUnload", unload)
    load = pb.RepositoryModelLoadRequest(model_name=CHURN)
    if mutate.chance(0.5):
        for name, value in load_parameters(mutate).items():
            if name == "config":
                load.parameters[name].string_param = value
            else:
                load.parameters[name].bytes_param = value.encode()
    return _case(mutate, "control", "RepositoryModelLoad", load)


def _settings(mutate: Mutator) -> GrpcCase:
    if mutate.chance(0.4):
        message = pb.LogSettingsRequest()
        message.settings["log_verbose_level"].uint32_param = 0
        message.settings["log_info"].bool_param = True
        return _case(mutate, "logging", "LogSettings", message)
    trace = pb.TraceSettingRequest(model_name=mutate.random.choice(["", "identity", "nobody"]))
    trace.settings["trace_rate"].value.append("1")
    trace.settings["trace_level"].value.extend(["TIMESTAMPS"])
    return _case(mutate, "trace", "TraceSetting", trace)


def _memory(mutate: Mutator, region_key: str) -> GrpcCase:
    name = mutate.random.choice(["a", "b", "c"])
    match mutate.random.randrange(5):
        case 0:
            message = pb.SystemSharedMemoryRegisterRequest(name=name, key=region_key, byte_size=256)
            return _case(mutate, "memory", "SystemSharedMemoryRegister", message)
        case 1:
            message = pb.SystemSharedMemoryUnregisterRequest(name=name)
            return _case(mutate, "memory", "SystemSharedMemoryUnregister", message)
        case 2:
            message = pb.SystemSharedMemoryStatusRequest(name=name)
            return _case(mutate, "memory", "SystemSharedMemoryStatus", message)
        case 3:
            message = pb.CudaSharedMemoryRegisterRequest(name=name, raw_handle=b"x", byte_size=9)
            return _case(mutate, "memory", "CudaSharedMemoryRegister", message)
    message = _infer_message(mutate)
    size = sum(map(len, message.raw_input_contents))
    for tensor in [*message.inputs, *message.outputs]:
        tensor.parameters["shared_memory_region"].string_param = name
        tensor.parameters["shared_memory_byte_size"].int64_param = size
    del message.raw_input_contents[:]
    return _case(mutate, "memory", "ModelInfer", message)


def describe(case: GrpcCase) -> str:
    return json.dumps(
        {
            "method": case.method,
            "metadata": [repr(pair) for pair in case.metadata],
            "messages": [message.hex() for message in case.messages],
        }
    )
