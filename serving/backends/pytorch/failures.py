"""What torch says when it fails, cut to the sentence that matters.

Pure functions over exceptions; any thread. Source: spec PT-06, PT-28, PT-29, PT-30.
"""

from __future__ import annotations

import re
from pathlib import Path

from serving.errors import (
    BackendError,
    ErrorCode,
    FailureReason,
    InstanceLostError,
    InternalError,
    ServingError,
    error_from_code,
)

_MAX_CHARACTERS = 400
_INTERPRETER = "TorchScript interpreter"
_RAISED = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt|Iteration)\w*: (.+)$", re.MULTILINE)
_REFUSED = re.compile(r"^builtins\.(?:ValueError|IndexError): ", re.MULTILINE)
"""What a scripted module raises itself about the values that it was given."""
_STICKY = re.compile(r"CUDA error: |CUDA driver error|cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")
"""How a text begins after which every later call of CUDA in the process fails too. Further on, a
cause may quote what a caller has sent."""
_CHECKED = re.compile(r"^\[enforce fail at [^\]]*\] ?[^.]*\. ")
"""`[enforce fail at alloc_cpu.cpp:127] err == 0. `: what was checked, and where in the sources."""
_SAYS_NO_MORE = ("Exception raised from", "This is an internal miniz error")
_OTHER_DEVICE = re.compile(r"tensors to be on the same device|is not on the expected device")
_SHAPES = re.compile(
    r"\b(?:sizes?|shapes?|dim|dims|dimensions?|dimensional|numel|elements|channels|batch)\b|"
    r"index out of range|out of bounds|is invalid for input of size|Padding size",
    re.IGNORECASE,
)


def cause_of(error: BaseException) -> str:
    """The first line of what went wrong, without the traces of TorchScript and C++."""
    text = str(error)
    if _INTERPRETER in text:
        raised = _RAISED.findall(text)
        text = raised[-1] if raised else text.partition("\n")[0]
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for more in _SAYS_NO_MORE:
        line = line.partition(more)[0].strip()
    return _cut(_CHECKED.sub("", line)) or type(error).__name__


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "..."


def joined(error: BaseException) -> str:
    """The whole message in one line, for those whose first line says nothing."""
    return _cut(" ".join(str(error).split()))


def load_error(model: str, path: Path, error: BaseException, hint: str = "") -> ServingError:
    """The file is there and torch cannot load it; `hint` says how to mend it."""
    file = f"{path.parent.name}/{path.name}"
    return InternalError(f"failed to load model '{model}': {file}: {cause_of(error)}{hint}")


def execution_error(model: str, error: BaseException) -> ServingError:
    """Why an execution failed: the caller's shapes, the model, or a GPU that is lost."""
    cause = cause_of(error)
    text = f"PyTorch execute failure: model '{model}': {cause}"
    is_of_device = _STICKY.match(cause) or type(error).__name__ == "AcceleratorError"
    if is_of_device and "out of memory" not in cause:
        return InstanceLostError(
            f"{text}; this CUDA error may come from an earlier request, and nothing in this "
            "process can use the GPU any more: start the server with CUDA_LAUNCH_BLOCKING=1 to "
            "see which request causes it"
        )
    if _OTHER_DEVICE.search(cause):
        return BackendError(
            f"{text}; a traced module is bound to the device on which it was traced: name that "
            "GPU in gpus of the instance group, use KIND_MODEL, or script the module instead"
        )
    is_refusal = _INTERPRETER in str(error) and _REFUSED.search(str(error))
    if is_refusal or (isinstance(error, (IndexError, RuntimeError)) and _SHAPES.search(cause)):
        return error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)
    return BackendError(text)
