"""The process of one engine build: `python -m workers.engine_process <fd> <parent pid>`.

Reads an EngineJob as JSON from its input, tells of its progress in lines of JSON on descriptor
`fd` (libraries print to standard output), and leaves model.plan and config.pbtxt in the job's
folder. A build takes minutes and gigabytes, and a builder that crashes takes nobody with it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from serving.backends.tensorrt.build import BuildOptions, BuiltEngine, Progress, build
from serving.backends.tensorrt.signature import complete
from serving.child_program import die_with_parent
from serving.config.format import to_pbtxt
from serving.config.plan_header import PRODUCTS
from serving.config.protobuf import pb
from serving.errors import CancelledError, ServingError
from workers.engine_messages import EngineOrder

PLAN, CONFIG = "model.plan", "config.pbtxt"


class EngineJob(msgspec.Struct, frozen=True):
    order: EngineOrder
    onnx: str
    folder: str
    """Where the results go."""
    timing_cache: str
    """The folder of timing caches."""


class Line(msgspec.Struct, frozen=True):
    """One line of the process: progress, or its last word (`error` or `engine_bytes`)."""

    phase: str = ""
    fraction: float = 0.0
    error: str = ""
    engine_bytes: int = 0
    builder: str = ""

    @property
    def is_last(self) -> bool:
        return bool(self.error or self.engine_bytes)


def main() -> int:
    descriptor, parent_pid = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent_pid)
    with os.fdopen(descriptor, "wb", buffering=0) as out:
        job = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineJob)
        try:
            line = _run(job, out)
        except (ServingError, CancelledError) as error:
            line = Line(error=error.message)
        except MemoryError:
            line = Line(error="the machine has too little memory for this build")
        except OSError as error:
            line = Line(error=f"the engine could not be written: {error.strerror}")
        _say(out, line)
    return 0


def _run(job: EngineJob, out: BinaryIO) -> Line:
    order = job.order
    options = BuildOptions(
        order.library,
        order.precision,
        [
            {
                name: (tuple(low), tuple(best), tuple(high))
                for name, (low, best, high) in item.items()
            }
            for item in order.profiles
        ],
        order.workspace_bytes,
        order.capabilities,
        order.is_version_compatible,
        Path(job.timing_cache),
    )
    progress = Progress(lambda phase, fraction: _say(out, Line(phase, fraction)))
    built = build(Path(job.onnx), options, progress)
    folder = Path(job.folder)
    with (folder / PLAN).open("wb") as file:
        file.write(built.plan)
        file.flush()
        os.fsync(file.fileno())
    (folder / CONFIG).write_text(config_text(order.target, built), encoding="utf-8")
    size = (folder / PLAN).stat().st_size
    return Line(engine_bytes=size, builder=f"{PRODUCTS[built.library]} {built.version}")


def config_text(name: str, built: BuiltEngine) -> str:
    """A config.pbtxt for the engine: its inputs, outputs and batch size, every profile in use."""
    config = pb.ModelConfig(name=name, platform="tensorrt_plan", backend="tensorrt")
    complete(config, built.signature)
    profiles = built.signature.profiles
    if len(profiles) > 1:
        group = config.instance_group.add()
        group.profile.extend(str(item.number) for item in profiles)
    return to_pbtxt(config)


def _say(out: BinaryIO, line: Line) -> None:
    out.write(msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
