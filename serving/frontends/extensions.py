"""Triton extensions that concern the process and not a model: logging, client shared memory.

What both HTTP and gRPC say about them; loop thread. Client shared memory is off, as it is by
default in Triton: there are no regions, and registering one is refused.
Source: spec HTTP-090, HTTP-100, GRPC-013 to GRPC-016.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from serving import logging_setup
from serving.errors import NotFoundError, UnsupportedError
from serving.protocol import log_settings

logger = logging.getLogger(__name__)


def read_log_settings() -> dict[str, log_settings.Setting]:
    return log_settings.describe(_log_options())


def change_log_settings(wanted: Mapping[str, object]) -> dict[str, log_settings.Setting]:
    """Applies at once. Raises ServingError and changes nothing when any setting is wrong."""
    before = _log_options()
    after = log_settings.change(before, wanted)
    if after != before:
        logging_setup.configure(after)
        logger.info("log settings changed to %s", log_settings.describe(after))
    return log_settings.describe(after)


def _log_options() -> logging_setup.LogOptions:
    options = logging_setup.configured()
    if options is None:
        raise UnsupportedError(
            "this server runs inside a program that has logging of its own; change it there"
        )
    return options


def check_region(kind: str, name: str) -> None:
    """Status of one region. Raises NotFoundError: none can be registered."""
    if name:
        raise NotFoundError(f"Unable to find {kind} shared memory region: '{name}'")


def shared_memory_is_off(kind: str) -> UnsupportedError:
    return UnsupportedError(
        f"client shared memory is off (--allow-client-shm=false) and the {kind} shared memory "
        "extension is not available in this release; send tensors in the request"
    )
