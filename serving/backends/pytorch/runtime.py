"""The one import of torch: devices, and tensors out of arrays and back.

Load threads enter through the backend, and the thread of each instance. Arrays that come from
requests are never written to. Source: spec PT-08, PT-23, CFG-069.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from serving.backends.base import ModelContext, Placement
from serving.backends.runtimes import require
from serving.config.decode import InstanceKind
from serving.config.torch_dtypes import DATATYPES
from serving.errors import InvalidArgumentError, ModelLoadError

Array = NDArray[np.generic]
INSTALL = "pip install 'conch[pytorch]'"
_COPY_BELOW = 64 * 1024
"""Bytes: a copy of less costs less than looking through another view."""
_imported: dict[str, Any] = {}
"""Asked for several times in each execution; the import system would take its locks each time."""
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def torch(module: str = "torch") -> Any:
    """The package, or one of its modules, e.g. torch._inductor.

    Raises: UnavailableError with the command that installs it.
    """
    found = _imported.get(module)
    if found is None or sys.modules.get(module) is not found:
        found = _imported[module] = require(module, backend="pytorch", install=INSTALL)
    return found


def device_of(context: ModelContext, placement: Placement) -> Any | None:
    """The torch.device of an instance; None for KIND_MODEL, whose module keeps its own (PT-23).

    Raises: ModelLoadError where the installed torch cannot use a GPU.
    """
    if placement.kind is InstanceKind.MODEL:
        return None
    if placement.kind is not InstanceKind.GPU:
        return torch().device("cpu")
    if not torch().cuda.is_available():
        raise ModelLoadError(
            f"instance '{placement.instance_name}' is KIND_GPU, but the installed torch "
            f"{torch().__version__} finds no CUDA device: install a build of torch for CUDA and "
            "check the driver, or use KIND_CPU"
        )
    index = context.cuda_number(placement)
    if index >= torch().cuda.device_count():
        raise ModelLoadError(
            f"instance '{placement.instance_name}' is to run on GPU {index}, but torch sees "
            f"{torch().cuda.device_count()}: check CUDA_VISIBLE_DEVICES"
        )
    return torch().device("cuda", index)


def device_of_parameters(module: Any) -> Any:
    """Where the first parameter of a module lies; for a module without any, the first GPU where
    there is one, else the CPU (CFG-069)."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch().device("cuda" if torch().cuda.is_available() else "cpu")


def give_back_memory() -> None:
    """To the GPU, what torch keeps of it for later; nothing where no GPU is in use."""
    if torch().cuda.is_initialized():
        torch().cuda.empty_cache()


def to_tensor(array: Array, device: Any, *, is_written: bool = True) -> Any:
    """A tensor on `device` with the content of the array.

    On the CPU it is the array's own memory unless the model may write to it (`is_written`): what a
    caller has sent, or another step of an ensemble reads as well, must stay as it is.
    """
    if array.dtype == _BFLOAT16:
        return to_tensor(array.view(np.int16), device, is_written=is_written).view(torch().bfloat16)
    flags = array.flags
    is_plain = flags.aligned and flags.c_contiguous
    if not is_plain or array.nbytes < _COPY_BELOW or (is_written and device.type == "cpu"):
        array = np.array(array, order="C")
    elif not flags.writeable:
        array = _without_warning(array)
    return torch().from_numpy(array).to(device)


def _without_warning(array: Array) -> Array:
    """The same memory, for torch, which warns of every array that is read-only."""
    memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory.owner = array  # type: ignore[attr-defined]
    return np.ndarray(array.shape, array.dtype, memoryview(memory))


def to_array(tensor: Any) -> Array:
    """The tensor's content in memory of its own: what a module returns may be part of the module,
    or of a request. Waits for the GPU.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch().bfloat16:
        bits = to_array(tensor.contiguous().view(torch().int16))
        return bits.view(ml_dtypes.bfloat16)
    if tensor.device.type == "cpu":
        return np.array(tensor.numpy(), order="C")
    array: Array = tensor.cpu().contiguous().numpy()
    return array


def datatype_of(tensor: Any) -> str | None:
    """Protocol name of the tensor's data type; None for one that no response can carry."""
    return DATATYPES.get(str(tensor.dtype).removeprefix("torch."))


def to_strings(array: Array, name: str, model: str) -> list[str]:
    """The elements of a BYTES tensor in order (PT-08).

    Raises: InvalidArgumentError where one is no UTF-8 text.
    """
    try:
        return [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel()]
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"input '{name}' of model '{model}' holds bytes that are no UTF-8 text ({error}): a "
            "List[str] takes text only"
        ) from error


def from_strings(items: Sequence[str]) -> Array:
    """A flat BYTES array."""
    flat = np.empty(len(items), dtype=np.object_)
    flat[:] = [item.encode() for item in items]
    return flat
