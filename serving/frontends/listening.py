"""A listening socket for any protocol. Loop thread."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any


async def listen(
    make: Callable[[], asyncio.BaseProtocol],
    address: str,
    port: int,
    *,
    reuse_port: bool,
    **tls: Any,
) -> asyncio.Server:
    """`tls`: what `create_server` takes for it.

    Raises: OSError naming an address that is taken or none of this machine.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            make, address, port, backlog=1024, reuse_port=reuse_port or None, **tls
        )
    except OSError as error:
        number = error.errno or 0  # negative: from the look-up of a name, not in strerror
        reason = os.strerror(number) if number > 0 else error.strerror
        raise OSError(number, f"{reason} ({address}:{port})") from error
