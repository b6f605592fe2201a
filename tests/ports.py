"""Free TCP ports on loopback for tests that start real servers.

They lie below the range from which the kernel gives ports to clients, and each process begins at a
place of its own: nobody else takes one between the look and the start of the server.
"""

from __future__ import annotations

import os
import socket

_LOW, _HIGH = 12_000, 32_000
_next = _LOW + os.getpid() * 97 % (_HIGH - _LOW)


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different, none given before by this process."""
    global _next
    found: list[int] = []
    while len(found) < count:
        port, _next = _next, _LOW if _next + 1 == _HIGH else _next + 1
        if _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do, so that a port in TIME_WAIT counts as free for them alike.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
