"""Settings of torch that hold for the whole process, and whose they are at the moment.

The first model that sets a number of threads has its way (PT-20). Compiler switches and cuDNN are
set for each execution, where any model of the process has asked for something else than the
defaults; executions of models that differ and run at the same time share them (PT-15..21). Load
threads and the threads of instances enter.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from serving.backends.pytorch.runtime import torch
from serving.config.torch_parameters import TorchOptions

logger = logging.getLogger(__name__)


class ThreadCounts:
    """Who has set which number of threads in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._won: dict[str, tuple[int, str]] = {}

    def claim(self, parameter: str, count: int, model: str) -> int:
        """The number that holds: of the first model that has set one; 0: none has."""
        with self._lock:
            if not count:
                return self._won.get(parameter, (0, ""))[0]
            held, winner = self._won.setdefault(parameter, (count, model))
        if held != count:
            logger.warning(
                "parameter '%s' of model '%s' is %d and has no effect: it holds for the whole "
                "process, and model '%s' was the first to set it, to %d",
                parameter,
                model,
                count,
                winner,
                held,
            )
        return held


_counts = ThreadCounts()
_interop_lock = threading.Lock()


def apply_threads(options: TorchOptions, model: str) -> None:
    """For a model that is loaded, in the thread that will execute it."""
    count = _counts.claim("INTRA_OP_THREAD_COUNT", options.intra_op_threads, model)
    if count:
        torch().set_num_threads(count)
    count = _counts.claim("INTER_OP_THREAD_COUNT", options.inter_op_threads, model)
    if count:
        set_interop_threads(count, f"parameter 'INTER_OP_THREAD_COUNT' of model '{model}'")


def set_interop_threads(count: int, what: str) -> None:
    """torch allows this once, before anything runs in parallel."""
    with _interop_lock:
        if torch().get_num_interop_threads() == count:
            return
        try:
            torch().set_num_interop_threads(count)
        except RuntimeError:
            logger.warning(
                "%s is %d and has no effect: torch has %d already and has begun to use them; "
                "load this model first",
                what,
                count,
                torch().get_num_interop_threads(),
            )


@dataclass(frozen=True, slots=True)
class _Switches:
    jit_executor: bool = True
    jit_profiling: bool = True
    tensor_fuser: bool = True
    cudnn: bool = True


_applied = _Switches()
_switch_lock = threading.Lock()


@contextlib.contextmanager
def modes(options: TorchOptions, stream: Any | None = None) -> Iterator[None]:
    """Loading and executing within are as the options say, on a GPU in this stream."""
    _apply(
        _Switches(options.jit_executor, options.jit_profiling, options.tensor_fuser, options.cudnn)
    )
    native = torch()._C
    native._set_graph_executor_optimize(options.optimized_execution)  # this thread's
    with torch().inference_mode(options.inference_mode):
        if stream is None:
            yield
            return
        with torch().cuda.stream(stream):
            yield


def _apply(wanted: _Switches) -> None:
    global _applied
    if wanted == _applied:
        return
    with _switch_lock:
        native = torch()._C
        native._jit_set_profiling_executor(wanted.jit_executor)
        native._jit_set_profiling_mode(wanted.jit_profiling)
        native._jit_set_texpr_fuser_enabled(wanted.tensor_fuser)
        native._set_cudnn_enabled(wanted.cudnn)
        _applied = wanted
