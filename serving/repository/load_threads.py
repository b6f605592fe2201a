"""Threads for loading: one a job, daemon, so that a load that never ends holds up nothing.

A `ThreadPoolExecutor` would lose a pool thread to each hung load and join them at exit. How many
loads run at once is the manager's business (it holds slots); used from the loop thread.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LoadThreads(Executor):
    def __init__(self, name: str = "load") -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._is_shut_down:
            raise RuntimeError("cannot load: the server has stopped")
        future: Future[T] = Future()
        thread = threading.Thread(
            target=_run,
            args=(future, fn, args, kwargs),
            name=f"{self._name}-{next(self._numbers)}",
            daemon=True,
        )
        thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs. Never waits: what runs is daemon."""
        self._is_shut_down = True


def _run(
    future: Future[Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
