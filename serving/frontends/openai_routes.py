"""The OpenAI-compatible routes /v1/...: models, completions, chats, embeddings. Loop thread.

Each becomes a generate request to a model that qualifies by its signature; see
`serving.protocol.openai`. Source: spec TOOL-060 to TOOL-066.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import orjson
from numpy.typing import NDArray

from serving.errors import InternalError, ServingError
from serving.frontends.http_messages import (
    JSON,
    Cancel,
    Handler,
    HttpRequest,
    HttpResponse,
    Reply,
    check_plain_json,
    json_response,
)
from serving.frontends.http_tracing import traced
from serving.frontends.openai_models import (
    ModelsRoutes,
    internal_error,
    openai_error,
    ready_model,
)
from serving.frontends.openai_text import StreamedAnswer, WholeAnswer
from serving.options import FrontendOptions
from serving.protocol import generate
from serving.protocol.openai import answers, embeddings, text
from serving.protocol.openai.answers import Usage
from serving.protocol.openai.members import Members
from serving.request import InferenceRequest, RequestedOutput
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

PREFIX = "/v1/"
_MODEL_PATH = re.compile(r"/v1/models/(?P<model>[^/]+)(?P<rest>/load|/unload)?")
_INFERENCE = frozenset({"/v1/completions", "/v1/chat/completions", "/v1/embeddings"})


class OpenAiRoutes:
    def __init__(self, server: ModelServer, options: FrontendOptions, tracer: Tracer) -> None:
        self._server = server
        self._tracer = tracer
        self._max_input_size = options.http_max_input_size
        self._default_max_tokens = options.openai_default_max_tokens
        models = ModelsRoutes(server)
        self._fixed: dict[str, dict[bytes, Handler]] = {
            "/v1/models": {b"GET": _guarded(models.list)},
            "/v1/completions": {b"POST": _guarded(partial(self._complete, is_chat=False))},
            "/v1/chat/completions": {b"POST": _guarded(partial(self._complete, is_chat=True))},
            "/v1/embeddings": {b"POST": _guarded(self._embed)},
        }
        self._of_model: dict[str, dict[bytes, Handler]] = {
            "": {b"GET": _guarded(models.one)},
            "/load": {b"POST": _guarded(models.load)},
            "/unload": {b"POST": _guarded(models.unload)},
        }

    def lookup(self, path: str) -> tuple[Mapping[bytes, Handler] | None, str]:
        """Handlers by method, and the name of the model where the path has one."""
        match = _MODEL_PATH.fullmatch(path)
        if match is None:
            return self._fixed.get(path), ""
        return self._of_model[match["rest"] or ""], match["model"]

    def _complete(
        self, http: HttpRequest, reply: Reply, model: str, version: int, *, is_chat: bool
    ) -> Cancel:
        check_plain_json(http, "a completion", self._max_input_size)
        call = text.read_call(
            Members.parse(http.body),
            is_chat=is_chat,
            default_max_tokens=self._default_max_tokens,
        )
        spec = ready_model(self._server, call.model).spec
        text.check_signature(spec, is_chat=is_chat)
        request = generate.request_of(text.generate_members(call, spec).items(), spec, -1)
        request.requested_outputs = list(map(RequestedOutput, text.wanted_outputs(spec)))
        if self._tracer.is_on:
            reply = traced(self._tracer, call.model, http, request, reply)
        kind = StreamedAnswer if call.is_streamed else WholeAnswer
        request.on_response = kind(call, request, reply).on_response
        self._server.infer(request)
        return request.cancel

    def _embed(self, http: HttpRequest, reply: Reply, model: str, version: int) -> Cancel:
        check_plain_json(http, "embeddings", self._max_input_size)
        call = embeddings.read_call(Members.parse(http.body))
        spec = ready_model(self._server, call.model).spec
        tensors = embeddings.tensors_of(spec)
        outputs = embeddings.wanted_outputs(tensors, spec)
        requests = []
        for item in call.texts:
            members = embeddings.generate_members(call, tensors, spec, item)
            request = generate.request_of(members.items(), spec, -1)
            request.requested_outputs = list(map(RequestedOutput, outputs))
            requests.append(request)
        if self._tracer.is_on:
            reply = traced(self._tracer, call.model, http, requests[0], reply)
        gathering = _Vectors(call, tensors, requests, reply)
        for index, request in enumerate(requests):
            request.on_response = partial(gathering.take, index)
            self._server.infer(request)
        return gathering.cancel


class _Vectors:
    """The vectors of all texts of one call; one failure is the failure of all."""

    def __init__(
        self,
        call: embeddings.EmbeddingCall,
        tensors: embeddings.EmbeddingTensors,
        requests: list[InferenceRequest],
        reply: Reply,
    ) -> None:
        self._call = call
        self._tensors = tensors
        self._requests = requests
        self._reply = reply
        self._vectors: dict[int, NDArray[np.float32]] = {}
        self._usage = Usage()
        self._is_over = False

    def take(self, index: int, response: InferenceResponse) -> None:
        if self._is_over or not response.is_final:
            return
        try:
            if response.error is not None:
                raise response.error
            self._vectors[index] = embeddings.vector_of(response, self._call, self._tensors)
        except ServingError as error:
            self._fail(error)
            return
        except Exception:
            logger.exception("cannot read a response model=%s", response.model_name)
            self._fail(InternalError("internal error while reading a response of the model"))
            return
        counted = answers.piece_of(response).tokens_in
        if counted is not None:
            self._usage.tokens_in = (self._usage.tokens_in or 0) + counted
        if len(self._vectors) == len(self._requests):
            self._is_over = True
            vectors = [self._vectors[place] for place in range(len(self._requests))]
            body = embeddings.answer(self._call, vectors, self._usage)
            data = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
            self._reply(HttpResponse(200, [data], JSON))

    def _fail(self, error: ServingError) -> None:
        self.cancel()
        self._reply(openai_error(error))

    def cancel(self) -> None:
        self._is_over = True
        for request in self._requests:
            request.cancel()


def category(path: str) -> str:
    """The kind of call for --http-restricted-api; empty for no route of ours."""
    match = _MODEL_PATH.fullmatch(path)
    if match is not None and match["rest"]:
        return "model-repository"
    if path == "/v1/models" or match is not None:
        return "metadata"
    return "inference" if path in _INFERENCE else ""


def restricted(header: str) -> HttpResponse:
    message = f"This API is restricted, expecting header '{header}'"
    return json_response(answers.error_body(message, "authentication_error"), 401)


def not_found(request: HttpRequest, reply: Reply, model: str, version: int) -> None:
    message = f"Unknown request URL: {request.method.decode()} {request.path.decode('latin-1')}"
    body = answers.error_body(message, "invalid_request_error", code="unknown_url")
    reply(json_response(body, 404))


def not_allowed(request: HttpRequest, reply: Reply, model: str, version: int) -> None:
    message = f"Not allowed: {request.method.decode()} {request.path.decode('latin-1')}"
    reply(json_response(answers.error_body(message, "invalid_request_error"), 405))


def _guarded(handler: Handler) -> Handler:
    """Errors in OpenAI's form."""

    def handle(request: HttpRequest, reply: Reply, model: str, version: int) -> Cancel | None:
        try:
            return handler(request, reply, model, version)
        except ServingError as error:
            reply(openai_error(error))
        except Exception:
            logger.exception("a route failed unexpectedly path=%r", request.path)
            reply(internal_error())
        return None

    return handle
