"""One shared library: whether it is a backend for Conch, opening it, and calling its functions.

Opening runs code of the library's, so it is looked at first without. Load threads enter, and those
of instances; ctypes lets go of the interpreter while the library runs. Source: spec BE-002..006.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

from serving.backends.attributes import BackendAttributes, ExecutionPolicy
from serving.backends.native import abi
from serving.errors import ModelLoadError, UnsupportedError
from serving.native_code import check_whole

_VERSION = "conch_backend_abi_version"
_TRITON = b"TRITONBACKEND_"
_ADDRESS, _NUMBER, _CODE = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32
_EXPORTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conch_backend_attributes": (None, (_ADDRESS,)),
    "conch_backend_initialize": (_CODE, (_ADDRESS, _ADDRESS)),
    "conch_backend_finalize": (None, (_ADDRESS,)),
    "conch_model_initialize": (_CODE, (_ADDRESS, _ADDRESS)),
    "conch_model_finalize": (None, (_ADDRESS,)),
    "conch_instance_initialize": (_CODE, (_ADDRESS, _ADDRESS)),
    "conch_instance_finalize": (None, (_ADDRESS,)),
    "conch_instance_ready": (_CODE, (_ADDRESS, _ADDRESS)),
    "conch_instance_execute": (_CODE, (_ADDRESS, _ADDRESS, _NUMBER, _ADDRESS)),
}


def check_file(name: str, path: Path) -> None:
    """Raises: UnsupportedError for a file that is no backend for Conch. Runs none of its code."""
    shown = f"backend '{name}': {path.parent.name}/{path.name}"
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] == b"\x7fELF" and data.find(f"\0{_VERSION}\0".encode()) >= 0:
                return
            is_for_triton = data.find(_TRITON) >= 0
    except ValueError:  # an empty file cannot be mapped
        is_for_triton = False
    except OSError as error:
        raise UnsupportedError(f"{shown} cannot be read: {error.strerror}") from error
    if is_for_triton:
        raise UnsupportedError(
            f"{shown} is a library for Triton, which cannot be loaded here: build its source anew "
            "against conch_backend.h, or use the backend's Python counterpart"
        )
    raise UnsupportedError(
        f"{shown} is no backend library: it does not export {_VERSION}, see conch_backend.h"
    )


class Library:
    def __init__(self, path: Path) -> None:
        """Opens it. Raises: ModelLoadError for one that cannot be opened, or lacks what it must
        have."""
        self.path = path
        self._shown = f"{path.parent.name}/{path.name}"
        check_whole(path)
        try:
            self._opened = ctypes.CDLL(str(path))
        except OSError as error:
            cause = str(error).replace(f"{path}: ", "")
            raise ModelLoadError(f"{self._shown} cannot be opened: {cause}") from error
        version = getattr(self._opened, _VERSION, None)
        if version is None or not hasattr(self._opened, "conch_instance_execute"):
            raise ModelLoadError(
                f"{self._shown} must export {_VERSION} and conch_instance_execute, see "
                "conch_backend.h"
            )
        version.argtypes, version.restype = [], _NUMBER
        if (found := version()) != abi.ABI_VERSION:
            raise ModelLoadError(
                f"{self._shown} was built for version {found} of conch_backend.h, this server has "
                f"version {abi.ABI_VERSION}: build it anew"
            )
        for name, (result, arguments) in _EXPORTS.items():
            if (function := getattr(self._opened, name, None)) is not None:
                function.argtypes, function.restype = arguments, result

    def has(self, name: str) -> bool:
        return hasattr(self._opened, name)

    def call(self, name: str, where: str, *arguments: Any) -> None:
        """A function that may fail; nothing where the library does not have it.

        Raises: ServingError with the code and message of the library; `where` begins the sentence.
        """
        function = getattr(self._opened, name, None)
        if function is None:
            return
        error = abi.Error()
        code = function(*arguments, ctypes.addressof(error))
        if code != abi.OK:
            raise abi.serving_error(code, error.text, where)

    def tell(self, name: str, argument: int) -> None:
        """A function that cannot fail; nothing where the library does not have it."""
        function = getattr(self._opened, name, None)
        if function is not None:
            function(argument)

    def attributes(self) -> BackendAttributes:
        told = abi.Attributes()
        self.tell("conch_backend_attributes", ctypes.addressof(told))
        policy = ExecutionPolicy.BLOCKING
        if told.execution_policy == abi.DEVICE_BLOCKING:
            policy = ExecutionPolicy.DEVICE_BLOCKING
        return BackendAttributes(policy, parallel_instance_loading=bool(told.parallel_loading))
