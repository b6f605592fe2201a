"""The life of `python -m serving`: open ports, load, tell, wait for a signal, finish, stop.

Ports open before models load: a port that is taken stops the start at once, and probes see a server
that is live and not yet ready. Loop thread only.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import sys

from serving.cli import CommandLine
from serving.errors import ServingError
from serving.frontends import Frontends, start_frontends
from serving.server import ModelServer
from serving.startup_tables import tables

logger = logging.getLogger(__name__)

_GRACE_S = 1.0
_FAILURE = 1


async def serve(line: CommandLine) -> int:
    """Runs until SIGTERM or SIGINT. Returns the exit status: 0, or 1 with a message on stderr."""
    stop = asyncio.Event()
    _watch_signals(stop)
    server = ModelServer(line.server)
    try:
        frontends = await start_frontends(server, line.frontends)
    except OSError as error:
        return _fail(_why_closed(error))
    except ServingError as error:
        return _fail(error.message)
    _log_ports(line, frontends)
    failure = await _start(server, stop)
    if not failure and not stop.is_set():
        for row in tables(line.server, server.repository_index()):
            logger.info("%s", row)
        _freeze()
        await stop.wait()
    logger.info("stopping: not ready, no new requests, finishing those accepted")
    is_clean = await server.stop()
    await frontends.stop(_GRACE_S)
    if failure:
        return _fail(failure)
    return 0 if is_clean else _fail("exit timeout expired before all requests had finished")


def _why_closed(error: OSError) -> str:
    reason = f"cannot listen: {error.strerror or error}"
    if error.errno != errno.EADDRINUSE:
        return reason
    return (
        f"{reason}: stop what listens there, or choose other ports with --http-port, --grpc-port "
        "and --metrics-port"
    )


async def _start(server: ModelServer, stop: asyncio.Event) -> str:
    """Start unless `stop` comes first. Returns what went wrong, or an empty text."""
    starting = asyncio.ensure_future(server.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return ""
    try:
        starting.result()
    except ServingError as error:
        return error.message
    return ""


def _watch_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            sys.stderr.write(f"{number.name} again: exiting at once\n")
            sys.stderr.flush()
            os._exit(_FAILURE)
        logger.info("%s received", number.name)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)


def _log_ports(line: CommandLine, frontends: Frontends) -> None:
    options = line.frontends
    for name, address, port in (
        ("HTTP", options.http_address, frontends.http_port),
        ("gRPC", options.grpc_address, frontends.grpc_port),
        ("metrics", options.metrics_address, frontends.metrics_port),
        ("OpenAI", options.http_address, frontends.openai_port),
        ("SageMaker", options.sagemaker.address, frontends.sagemaker_port),
        ("Vertex AI", options.vertex.address, frontends.vertex_port),
    ):
        if port:
            logger.info("%s on %s:%d", name, address, port)


def _freeze() -> None:
    """What is alive now stays alive: spare the collector from walking it again and again."""
    gc.collect()
    gc.freeze()


def _fail(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return _FAILURE
