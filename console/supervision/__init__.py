"""Runs all of Conch on one machine: starts, watches, restarts and stops its processes.

Plain Python: nothing here needs Django to be set up.
"""

from __future__ import annotations
