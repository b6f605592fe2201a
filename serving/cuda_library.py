"""The NVIDIA driver's own library, libcuda, through ctypes: loaded, started, its calls checked.

It is there wherever a GPU can be used, so no runtime, toolkit or package is needed. Whoever uses it
names the functions it calls, with their arguments. Calls release the GIL; any thread may make them.
Source: CUDA driver API.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_uint
from typing import Any

LIBRARY = "libcuda.so.1"
_OUT_OF_MEMORY = 2
_BASICS: dict[str, Sequence[Any]] = {
    "cuInit": [c_uint],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuDeviceGetCount": [POINTER(c_int)],
}


class CudaError(Exception):
    """A call of the driver failed; the text says which and why."""

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text)
        self.is_out_of_memory = code == _OUT_OF_MEMORY


class NoCudaError(Exception):
    """There is no driver, or no device; the text says which."""


class CudaLibrary:
    """The library, with the functions of `prototypes`: their arguments; each returns a CUresult."""

    def __init__(self, prototypes: Mapping[str, Sequence[Any]], library: str = LIBRARY) -> None:
        """Raises NoCudaError."""
        try:
            self._library = ctypes.CDLL(library)
            for name, arguments in {**_BASICS, **prototypes}.items():
                function = getattr(self._library, name)
                function.argtypes = list(arguments)
                function.restype = c_int
        except (OSError, AttributeError) as error:
            raise NoCudaError(f"the CUDA driver cannot be loaded ({error})") from error
        count = c_int()
        try:
            self.call("cuInit", 0)
            self.call("cuDeviceGetCount", byref(count))
        except CudaError as error:
            raise NoCudaError(f"the CUDA driver finds no device ({error})") from error
        self.device_count = count.value
        if not self.device_count:
            raise NoCudaError("the CUDA driver finds no device")

    def call(self, name: str, *arguments: Any) -> None:
        """Raises CudaError."""
        code = self.attempt(name, *arguments)
        if code:
            text = c_char_p()
            self._library.cuGetErrorString(code, byref(text))
            reason = text.value.decode() if text.value else f"error {code}"
            raise CudaError(f"{name}: {reason}", code)

    def attempt(self, name: str, *arguments: Any) -> int:
        """For steps back, which nobody can mend: the CUresult instead of an error."""
        code: int = getattr(self._library, name)(*arguments)
        return code
