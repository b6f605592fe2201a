"""The server inside a program: `serving.ModelServer`, for scripts, tests and notebooks.

The same core as behind the ports, on a thread of its own; every method here may be called from any
other thread, and the async_ ones from any loop. Words are the protocols' and, where they fit, those
of Triton's in-process Python API. Source: spec CLI-173.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from serving.errors import InvalidArgumentError, ServingError, UnavailableError
from serving.in_process_calls import AsyncStream, Call, Stream
from serving.in_process_tensors import Draft, RequestOptions, Response
from serving.options import ControlMode, FrontendOptions, ServerOptions
from serving.server_thread import Ports, ServerThread

if TYPE_CHECKING:
    from serving.repository.states import IndexEntry
    from serving.server import ModelServer as CoreServer

__all__ = ["FrontendOptions", "Model", "ModelServer", "Response", "ServingError"]

T = TypeVar("T")
_CLOSED = FrontendOptions(allow_http=False, allow_grpc=False, allow_metrics=False)


class ModelServer:
    """Serves one or several model repositories to its own program.

    Use it as a context manager, or call `start` and `stop`.
    """

    def __init__(
        self,
        model_repository: str | Path | Iterable[str | Path],
        *,
        frontends: FrontendOptions | None = None,
        **options: Any,
    ) -> None:
        """Nothing runs yet. `frontends`: ports to open as well; none by default.

        `options`: fields of `serving.options.ServerOptions`, which are tritonserver's options with
        underscores. Models are loaded by `load` unless model_control_mode says otherwise: it is
        "explicit" here.
        """
        if isinstance(model_repository, str | Path):
            model_repository = [model_repository]
        options.setdefault("model_control_mode", ControlMode.EXPLICIT)
        options["model_control_mode"] = ControlMode(options["model_control_mode"])
        self._options = replace(ServerOptions(tuple(map(_root, model_repository))), **options)
        self._frontends = frontends or _CLOSED
        self._thread: ServerThread | None = None

    def __repr__(self) -> str:
        roots = ", ".join(map(str, self._options.model_repositories))
        return f"<serving.ModelServer {roots} {'started' if self._thread else 'stopped'}>"

    # Life

    def start(self, timeout_s: float | None = None) -> ModelServer:
        """Returns when ports are open and the models of the start are loaded.

        Raises: OSError for a port that is taken; ServingError; TimeoutError.
        """
        if self._thread is not None:
            raise InvalidArgumentError("this server has been started; stop it first")
        thread = ServerThread(self._options, self._frontends)
        thread.start(timeout_s)
        self._thread = thread
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Finish what runs, unload, close. Harmless on a server that does not run."""
        thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self.stop)
            thread.stop()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def ports(self) -> Ports:
        return self.thread.ports

    @property
    def thread(self) -> ServerThread:
        """Where the server runs. Raises UnavailableError when it does not."""
        if self._thread is None:
            raise UnavailableError("the server is not running: call start, or use it in a with")
        return self._thread

    def is_live(self) -> bool:
        return self._thread is not None and self._thread.is_alive

    def is_ready(self) -> bool:
        thread = self._thread
        return thread is not None and self._ask(thread.server.is_ready)

    def metadata(self) -> dict[str, Any]:
        return self._ask(self.thread.server.server_metadata)

    def _ask(self, work: Callable[[], T]) -> T:
        return self.thread.invoke(work)

    # Models

    def load(
        self,
        name: str,
        *,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        versions: Collection[int] | None = None,
    ) -> Model:
        """Returns when the model is READY. Raises ServingError.

        `config`: JSON that replaces config.pbtxt; `files`: path -> content, instead of those in the
        repository; `versions`: serve exactly these.
        """
        server = self.thread.server
        self.thread.call(
            server.load_model(name, config_override=config, files=files, versions=versions)
        )
        return Model(self, name)

    def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """Returns when it gets no more requests; those in progress finish. Raises ServingError."""
        server = self.thread.server
        self.thread.call(server.unload_model(name, unload_dependents=unload_dependents))

    def model(self, name: str, version: int = -1) -> Model:
        """A ready one; -1 is the highest ready version. Raises ServingError."""
        self._ask(lambda: self.thread.server.model(name, version))
        return Model(self, name, version)

    def models(self, *, ready: bool = False) -> list[IndexEntry]:
        """The repository index: name, version, state and reason of each."""
        return self._ask(lambda: self.thread.server.repository_index(ready_only=ready))

    def statistics(self, name: str = "", version: int = -1) -> list[dict[str, Any]]:
        """Rows as in GET /v2/models/stats."""
        return self._ask(lambda: self.thread.server.model_statistics(name, version))

    # Inference

    def infer(
        self, name: str, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> Response:
        """See `Model.infer`."""
        return Model(self, name).infer(inputs, **options)

    async def async_infer(
        self, name: str, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> Response:
        """See `Model.async_infer`."""
        return await Model(self, name).async_infer(inputs, **options)

    def stream(
        self, name: str, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> Stream:
        """See `Model.stream`."""
        return Model(self, name).stream(inputs, **options)

    def async_stream(
        self, name: str, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> AsyncStream:
        """See `Model.async_stream`."""
        return Model(self, name).async_stream(inputs, **options)


class Model:
    """One model of a server; version -1 is the highest ready one at each call."""

    def __init__(self, server: ModelServer, name: str, version: int = -1) -> None:
        self._server = server
        self.name = name
        self.version = version

    def __repr__(self) -> str:
        return f"<serving.Model {self.name} version {self.version}>"

    def is_ready(self) -> bool:
        """False for one that is not known at all, too."""
        try:
            return self._ask(lambda: self._core.is_model_ready(self.name, self.version))
        except ServingError:
            return False

    def metadata(self) -> dict[str, Any]:
        return self._ask(lambda: self._core.model_metadata(self.name, self.version))

    def config(self) -> dict[str, Any]:
        from serving.config import json_form  # loads the config messages on first use

        return json_form.to_json(
            self._ask(lambda: self._core.model_config(self.name, self.version))
        )

    def statistics(self) -> list[dict[str, Any]]:
        return self._server.statistics(self.name, self.version)

    def infer(self, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]) -> Response:
        """Send one request and wait for its one answer.

        `inputs`: name -> array, with the batch axis where the model has one. Arrays keep their
        type; lists and numbers take the model's.
        Raises: ServingError; what ends the wait (Ctrl-C) cancels the request.
        """
        answer = self.submit(inputs, **options)
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            raise

    def submit(
        self, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> Future[Response]:
        """As `infer`, without waiting: for many requests at once. `cancel` of it cancels."""
        return Call(self._server.thread, self._draft(inputs, options)).answer

    async def async_infer(
        self, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> Response:
        """As `infer`, for a coroutine on the caller's loop; cancelling it cancels the request."""
        return await asyncio.wrap_future(self.submit(inputs, **options))

    def stream(self, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]) -> Stream:
        """All answers of a model, decoupled or not, as they come; leave it by `close` or `with`."""
        return Stream(self._server.thread, self._draft(inputs, options))

    def async_stream(
        self, inputs: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> AsyncStream:
        """As `stream`, for `async for` on the caller's loop."""
        return AsyncStream(self._server.thread, self._draft(inputs, options))

    def _draft(self, inputs: Mapping[str, Any], options: RequestOptions) -> Draft:
        return Draft(self.name, self.version, inputs, options)

    @property
    def _core(self) -> CoreServer:
        return self._server.thread.server

    def _ask(self, work: Callable[[], T]) -> T:
        return self._server.thread.invoke(work)


def _root(root: str | Path) -> str | Path:
    """A directory as a path, a URL as it is."""
    return root if isinstance(root, str) and "://" in root else Path(root)
