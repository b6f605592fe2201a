"""MODEL_INIT_LIBRARY: native code of a model's own that runs before its PT2 archive is loaded.

Load threads and the threads of instances enter; each library is opened once for each device of a
model. It runs with the rights of the server: --backend-config=pytorch,allow-native-code=false turns
it off. Source: spec PT-22.
"""

from __future__ import annotations

import _ctypes
import ctypes
from collections.abc import Mapping
from pathlib import Path

from serving.errors import ModelLoadError
from serving.native_code import check_whole, require_allowed

PARAMETER = "MODEL_INIT_LIBRARY"
_INIT, _FINI = "triton_pytorch_model_init", "triton_pytorch_model_fini"
CPU = -1


def library_of(parameters: Mapping[str, str], backend_config: Mapping[str, str]) -> Path | None:
    """The library that a model names; None for a model without.

    Raises: ModelLoadError for a path that is not absolute, UnsupportedError where this server does
    not allow native code.
    """
    text = parameters.get(PARAMETER, "").strip()
    if not text:
        return None
    require_allowed("pytorch", f"parameter {PARAMETER}", backend_config)
    path = Path(text)
    if not path.is_absolute() or "\0" in text:
        raise ModelLoadError(f"parameter {PARAMETER} is '{text}': it must be an absolute path")
    return path


class InitLibrary:
    """One call of the library's entry point, to be undone by `close`."""

    def __init__(self, path: Path, model_directory: Path, device: int) -> None:
        """Opens the library and calls `triton_pytorch_model_init`.

        `model_directory`: the version directory, which holds the archive; `device`: number of the
        GPU, or -1. Raises: ModelLoadError where it cannot be opened or lacks the entry point.
        """
        self._path = path
        check_whole(path)
        try:
            self._library: ctypes.CDLL | None = ctypes.CDLL(str(path))
        except OSError as error:
            raise ModelLoadError(
                f"{PARAMETER} '{path.name}' cannot be opened: {_without_folder(error, path)}"
            ) from error
        init = getattr(self._library, _INIT, None)
        if init is None:
            self._release()
            raise ModelLoadError(
                f"{PARAMETER} '{path.name}' does not export {_INIT}: declare it extern \"C\" as "
                f"void* {_INIT}(const char* model_dir, int device_index)"
            )
        init.argtypes, init.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
        self._state: int | None = init(bytes(model_directory), device)

    def close(self) -> None:
        """Calls `triton_pytorch_model_fini`, if there is one, and lets go of the library."""
        if self._library is None:
            return
        fini = getattr(self._library, _FINI, None)
        if fini is not None:
            fini.argtypes, fini.restype = [ctypes.c_void_p], None
            fini(self._state)
        self._release()

    def _release(self) -> None:
        if self._library is not None:
            handle, self._library = self._library._handle, None
            _ctypes.dlclose(handle)


def _without_folder(error: OSError, path: Path) -> str:
    return str(error).replace(f"{path}: ", "").replace(str(path), path.name)
