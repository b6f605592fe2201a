"""Triton extensions that concern the process and not a model: logging, which models can be traced.

What both HTTP and gRPC say about them; loop thread. Source: spec HTTP-090, GRPC-016.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from serving import logging_setup
from serving.errors import (
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from serving.protocol import log_settings

if TYPE_CHECKING:
    from serving.server import ModelServer

logger = logging.getLogger(__name__)


def read_log_settings() -> dict[str, log_settings.Setting]:
    return log_settings.describe(_log_options())


def change_log_settings(wanted: Mapping[str, object]) -> dict[str, log_settings.Setting]:
    """Applies at once. Raises ServingError and changes nothing when any setting is wrong."""
    before = _log_options()
    after = log_settings.change(before, wanted)
    if after != before:
        try:
            logging_setup.configure(after)
        except OSError as error:
            raise UnavailableError(
                f"the log file {after.file} cannot be opened any more: {error.strerror}"
            ) from error
        logger.info("log settings changed to %s", log_settings.describe(after))
    return log_settings.describe(after)


def _log_options() -> logging_setup.LogOptions:
    options = logging_setup.configured()
    if options is None:
        raise UnsupportedError(
            "this server runs inside a program that has logging of its own; change it there"
        )
    return options


def check_traced_model(server: ModelServer, name: str) -> None:
    """Raises InvalidArgumentError for a model that is not known; "" stands for all."""
    if not name:
        return
    try:
        server.is_model_ready(name)
    except NotFoundError:
        raise InvalidArgumentError(f"Request for unknown model : {name}") from None
