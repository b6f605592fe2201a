"""`manage.py up`: all of Conch on this machine, from one command."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from console.accounts.first_admin import FIRST_ADMIN, create_first_admin
from console.supervision import plan
from console.supervision.redis_server import RedisServerMissingError
from console.supervision.supervisor import StartFailedError, Supervisor


class Command(BaseCommand):
    help = (
        "Run the whole of Conch here: a private Redis (unless REDIS_URL is set), one worker, the "
        "control process and the web console. Restarts what dies; Ctrl-C stops it in order."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        env = os.environ.get
        parser.add_argument(
            "--host", default=env("CONCH_HOST", "127.0.0.1"), help="console address"
        )
        parser.add_argument(
            "--port",
            type=int,
            default=env("CONCH_PORT", "8080"),
            help="console port (default: %(default)s)",
        )
        for name, usual in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
            parser.add_argument(
                f"--worker-{name}-port",
                type=int,
                metavar="PORT",
                default=env(f"CONCH_{name.upper()}_PORT", str(usual)),
                help=f"{name} port of the worker (default: %(default)s)",
            )
        parser.add_argument(
            "--demo",
            type=Path,
            metavar="REPOSITORY",
            help="copy these models into the model repository if that is still empty",
        )
        parser.add_argument(
            "--no-load", action="store_true", help="on a first start, load no model by itself"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        up_options = plan.UpOptions(
            data_directory=settings.CONCH_DATA_DIR,
            repository=settings.CONCH_MODEL_REPOSITORY,
            host=options["host"],
            port=options["port"],
            worker_id=plan.default_worker_id(),
            worker_http_port=options["worker_http_port"],
            worker_grpc_port=options["worker_grpc_port"],
            worker_metrics_port=options["worker_metrics_port"],
            load_models=not options["no_load"],
        )
        try:
            plan.check_ports(up_options)
            self._prepare(up_options, options["demo"])
            password = create_first_admin()
            specs = plan.processes(up_options, os.environ)
            supervisor = Supervisor(specs, up_options.data_directory / "logs", self._tell)
            supervisor.run(lambda: self._welcome(up_options, password))
        except (plan.PortError, RedisServerMissingError, StartFailedError) as error:
            raise CommandError(str(error)) from error
        except ValidationError as error:
            raise CommandError(f"CONCH_ADMIN_PASSWORD: {' '.join(error.messages)}") from error

    def _tell(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _prepare(self, options: plan.UpOptions, demo: Path | None) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
        options.repository.mkdir(parents=True, exist_ok=True)
        if demo is None or any(options.repository.iterdir()):
            return
        if not demo.is_dir():
            raise CommandError(f"--demo {demo}: no such directory")
        for model in sorted(path for path in demo.iterdir() if path.is_dir()):
            shutil.copytree(model, options.repository / model.name)
        self._tell(f"Copied the demo models into {options.repository}")

    def _welcome(self, options: plan.UpOptions, password: str | None) -> None:
        self._tell("")
        self._tell(f"Conch is up: {plan.console_address(options)}")
        if password is not None:
            self._tell(
                f"First login: {FIRST_ADMIN} / {password}   (shown once; change it in Account)"
            )
        else:
            self._tell("Log in as before; `manage.py changepassword NAME` sets a new password.")
        self._tell("Ctrl-C stops everything.")
