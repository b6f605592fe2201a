"""Starts a module of the core in an interpreter of a model's own environment.

`foreign_start.py PATHS BORROWED MODULE ARGUMENTS...`: PATHS (as in PYTHONPATH) come after all that
the environment has, so that its packages win over those beside the core. From BORROWED only the
package is taken that has Triton's messages, which runs in any version of Python.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))
_BORROWED = "tritonclient"


class _Borrower(MetaPathFinder):
    """Asked last, for what the environment lacks."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, self._paths) if fullname == _BORROWED else None


def main() -> None:
    paths, borrowed, module = sys.argv[1:4]
    sys.argv[1:4] = []
    # An interpreter that does not know PYTHONSAFEPATH has put the core's own folder first.
    sys.path[:] = [path for path in sys.path if path != _HERE] + paths.split(os.pathsep)
    sys.meta_path.append(_Borrower(borrowed.split(os.pathsep)))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
