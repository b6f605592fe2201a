"""The stand-alone server of `python -m serving`: options, logging, then serving until a signal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import uvloop

from serving import cli, logging_setup
from serving.frontends.malloc import tune_malloc
from serving.standalone import serve


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0 normal, 1 after a bad option or a failed load (CLI-171)."""
    try:
        line = cli.parse(arguments, os.environ)
    except cli.CommandLineError as error:
        sys.stderr.write(f"error: {error}\n{cli.USAGE}\n")
        return 1
    if line is None:
        sys.stdout.write(cli.help_text())
        return 0
    tune_malloc()
    try:
        logging_setup.configure(line.logging)
    except OSError as error:
        sys.stderr.write(f"error: --log-file={line.logging.file}: {error.strerror}\n")
        return 1
    for warning in line.warnings:
        logging.getLogger("serving").warning("%s", warning)
    return uvloop.run(serve(line))
