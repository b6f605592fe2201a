"""`manage.py build_engine MODEL`: a TensorRT engine out of an ONNX model, on a worker."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.engines import operations, selectors, services
from console.engines.choices import BuildState
from console.engines.models import EngineBuild
from console.engines.services import Wish
from console.engines.shapes import ShapeError, parse_profile
from serving.errors import ServingError
from workers.client import WorkerError
from workers.engine_messages import LIBRARIES, PRECISIONS

LOOK_EVERY_S = 0.3


class Command(BaseCommand):
    help = (
        "Build a TensorRT engine out of the ONNX file of a model, on a connected worker. The "
        "engine becomes the next version of MODEL_trt, or of the model that --target names."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("model")
        parser.add_argument("--model-version", type=int, help="default: the newest")
        parser.add_argument("--target", default="", metavar="NAME")
        parser.add_argument("--worker", default="", metavar="ID")
        parser.add_argument("--library", default="", choices=["", *LIBRARIES])
        parser.add_argument("--precision", default="model", choices=PRECISIONS)
        parser.add_argument(
            "--profile",
            action="append",
            metavar="X=1x4,8x4,16x4;Y=...",
            help="smallest, best and largest shape of each input; once for each profile "
            "(default: out of the model's signature)",
        )
        parser.add_argument(
            "--capability",
            action="append",
            default=[],
            metavar="8.9",
            help="compute capability to build for without such a GPU, TensorRT-RTX only",
        )
        parser.add_argument("--workspace-mib", type=int, default=0, metavar="MIB")
        parser.add_argument("--version-compatible", action="store_true")
        parser.add_argument("--no-wait", action="store_true", help="return when it is asked for")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            profiles = options["profile"] and [parse_profile(text) for text in options["profile"]]
            build = services.build_engine(
                actor=None,
                wish=Wish(
                    model=options["model"],
                    version=options["model_version"],
                    target=options["target"],
                    worker_id=options["worker"],
                    library=options["library"],
                    precision=options["precision"],
                    profiles=profiles,
                    workspace_bytes=options["workspace_mib"] << 20,
                    capabilities=options["capability"],
                    is_version_compatible=options["version_compatible"],
                ),
            )
            # The control process may be away; whoever comes first sends it.
            operations.dispatch(build.pk)
            if options["no_wait"]:
                self.stdout.write(f"Engine build {build.pk} of {build.target} was asked for.")
                return
            self._end(self._followed(build))
        except (ServingError, ShapeError, WorkerError) as error:
            raise CommandError(str(error)) from error

    def _followed(self, build: EngineBuild) -> EngineBuild:
        """Tells of every change until the build is over."""
        told = ""
        try:
            while True:
                operations.follow()
                build = selectors.get(build.pk)
                if not build.is_open:
                    return build
                news = f"{build.percent:3} % {build.phase or build.get_state_display()}"
                if news != told:
                    self.stdout.write(news)
                    told = news
                time.sleep(LOOK_EVERY_S)
        except KeyboardInterrupt:
            services.cancel(actor=None, build=build)
            raise CommandError(f"Engine build {build.pk} is being cancelled.") from None

    def _end(self, build: EngineBuild) -> None:
        if build.state != BuildState.SUCCEEDED:
            raise CommandError(build.error or f"The build was {build.state}.")
        self.stdout.write(
            f"{build.target} version {build.target_version}: {build.engine_bytes:,} bytes, built "
            f"by {build.builder}"
        )
