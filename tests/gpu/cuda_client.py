"""A process with memory on GPU 0, as clients of CUDA shared memory are: `python -m` with a size.

Prints the handle in base64. Then, for each line of its input: `read` prints the content in hex.
"""

from __future__ import annotations

import base64
import ctypes
import sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

driver = ctypes.CDLL("libcuda.so.1")
driver.cuMemcpyHtoD_v2.argtypes = [c_uint64, c_void_p, c_size_t]
driver.cuMemcpyDtoH_v2.argtypes = [c_void_p, c_uint64, c_size_t]
driver.cuMemAlloc_v2.argtypes = [ctypes.POINTER(c_uint64), c_size_t]
driver.cuIpcGetMemHandle.argtypes = [c_void_p, c_uint64]


def call(name: str, *arguments: object) -> None:
    code = getattr(driver, name)(*arguments)
    if code:
        sys.exit(f"{name} failed with {code}")


def main(content: bytes) -> None:
    device, context, address = c_int(), c_void_p(), c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", byref(device), 0)
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxPushCurrent_v2", context)
    call("cuMemAlloc_v2", byref(address), len(content))
    call("cuMemcpyHtoD_v2", address, content, len(content))
    call("cuCtxSynchronize")
    handle = ctypes.create_string_buffer(64)
    call("cuIpcGetMemHandle", handle, address)
    sys.stdout.write(base64.b64encode(handle.raw).decode() + "\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        back = ctypes.create_string_buffer(len(content))
        call("cuMemcpyDtoH_v2", back, address, len(content))
        sys.stdout.write(back.raw.hex() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(bytes.fromhex(sys.argv[1]))
