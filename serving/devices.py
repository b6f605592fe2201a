"""The GPUs of this machine, through NVML. No driver, or no library: no GPUs, never an error.

`list_gpus` is for placement (which device ids exist), `sample_gpus` for metrics. Any thread may
call them; NVML itself is thread-safe. A figure that a device does not report is None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuDevice:
    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    compute_capability: float = 0.0
    """Of CUDA, e.g. 8.6; 0 where the driver does not say."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    uuid: str
    index: int
    utilization: float | None
    """0..1."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_usage_watts: float | None
    power_limit_watts: float | None
    energy_joules: float | None
    """Since the driver started to count."""
    temperature_celsius: float | None = None


def list_gpus() -> list[GpuDevice]:
    """All devices, by index; the same list for the life of the process."""
    return list(_devices())


def gpu_count() -> int:
    return len(_devices())


def sample_gpus() -> list[GpuSample]:
    """What every device does now."""
    nvml = _nvml()
    return [_sample(nvml, device) for device in _devices()] if nvml is not None else []


def memory_in_use(index: int) -> float | None:
    """The share of a device's memory that is taken, 0..1; None where nobody knows."""
    nvml = _nvml()
    if nvml is None:
        return None
    handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle) if handle is not None else None
    return memory.used / memory.total if memory is not None and memory.total else None


def memory_used_bytes(index: int) -> int | None:
    """What all processes together have of a device's memory; None where nobody knows."""
    nvml = _nvml()
    if nvml is None:
        return None
    handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle) if handle is not None else None
    return int(memory.used) if memory is not None else None


@cache
def _nvml() -> Any:
    """The initialised library, or None."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        # NVMLError_LibraryNotFound and its kin; a machine without GPUs is an ordinary machine.
        logger.info("no GPUs: NVML is not available (%s)", error)
        return None
    return pynvml


@cache
def _devices() -> tuple[GpuDevice, ...]:
    nvml = _nvml()
    if nvml is None:
        return ()
    devices = []
    for index in range(_ask(nvml.nvmlDeviceGetCount) or 0):
        handle = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue
        memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        devices.append(
            GpuDevice(
                index,
                str(_ask(nvml.nvmlDeviceGetUUID, handle) or index),
                str(_ask(nvml.nvmlDeviceGetName, handle) or "GPU"),
                int(memory.total) if memory else 0,
                _capability(_ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)),
            )
        )
    return tuple(devices)


def _sample(nvml: Any, device: GpuDevice) -> GpuSample:
    handle = _ask(nvml.nvmlDeviceGetHandleByIndex, device.index)
    rates = _ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    return GpuSample(
        device.uuid,
        device.index,
        rates.gpu / 100 if rates else None,
        int(memory.used) if memory else None,
        int(memory.total) if memory else None,
        _scaled(_ask(nvml.nvmlDeviceGetPowerUsage, handle)),
        _scaled(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        _scaled(_ask(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)),
        _ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
    )


def _capability(numbers: Sequence[int] | None) -> float:
    """NVML's (major, minor)."""
    return numbers[0] + numbers[1] / 10 if numbers else 0.0


def _scaled(thousandths: int | None) -> float | None:
    return None if thousandths is None else thousandths / 1000


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """None for what the device or driver does not know."""
    try:
        return function(*arguments)
    except Exception as error:
        logger.debug("NVML %s: %s", getattr(function, "__name__", function), error)
        return None
