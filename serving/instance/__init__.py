"""How model instances are hosted: in a thread of this process, or in a child process."""

from __future__ import annotations
