"""Machines without a GPU are ordinary machines."""

from __future__ import annotations

import pytest

from serving import devices


def has_nvml() -> bool:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return False
    return True


@pytest.mark.skipif(has_nvml(), reason="this machine has an NVIDIA driver")
def test_without_a_driver_there_are_no_gpus_and_no_error():
    assert devices.list_gpus() == []
    assert devices.gpu_count() == 0
    assert devices.sample_gpus() == []


@pytest.mark.gpu
@pytest.mark.skipif(not has_nvml(), reason="needs an NVIDIA driver")
def test_every_gpu_has_a_name_a_uuid_and_figures():
    gpus = devices.list_gpus()

    assert gpus
    assert len({gpu.uuid for gpu in gpus}) == len(gpus)
    for sample in devices.sample_gpus():
        assert sample.memory_total_bytes
        assert 0 <= (sample.utilization or 0) <= 1


def test_memory_in_use_is_a_share_or_unknown():
    shares = [devices.memory_in_use(gpu.index) for gpu in devices.list_gpus()]

    assert all(share is None or 0 <= share <= 1 for share in shares)
    assert devices.memory_in_use(9999) is None
