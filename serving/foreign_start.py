"""Starts a module of the core in an interpreter of a model's own environment.

`foreign_start.py PATHS MODULE ARGUMENTS...`: PATHS (as in PYTHONPATH) come after everything that
the environment has, so that its packages win over those beside the core.
"""

from __future__ import annotations

import os
import runpy
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    paths, module = sys.argv[1:3]
    sys.argv[1:3] = []
    # An interpreter that does not know PYTHONSAFEPATH has put the core's own folder first.
    sys.path[:] = [path for path in sys.path if path != _HERE] + paths.split(os.pathsep)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
