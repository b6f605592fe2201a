"""POST .../infer: from body to request, and from the core's answer to a reply, by callbacks only.

Loop thread; large JSON goes through `JsonThreads`. Source: spec protocol_http.md C; design: no Task
for a unary request.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from serving.errors import InvalidArgumentError, ServingError, UnsupportedError
from serving.frontends.http_load import with_load
from serving.frontends.http_messages import (
    HEADER_LENGTH,
    HEADER_LENGTH_KEY,
    JSON,
    OCTETS,
    Body,
    Cancel,
    HttpRequest,
    HttpResponse,
    Reply,
    error_response,
    render_head,
    text_error,
)
from serving.frontends.http_tracing import traced
from serving.frontends.json_threads import JsonThreads
from serving.options import FrontendOptions
from serving.protocol import compression
from serving.protocol.big_json import BIG_BYTES, BIG_ELEMENTS
from serving.protocol.known_requests import AnswerKey, KnownAnswer, KnownRequest
from serving.protocol.parameters import forward_headers
from serving.protocol.v2_http import (
    DecodedRequest,
    DecodeLimits,
    decode_request,
    encode_response,
    json_elements,
    parse_header_length,
)
from serving.request import request_tag
from serving.response import InferenceResponse

if TYPE_CHECKING:
    from serving.client_memory import ClientMemory
    from serving.model import Model
    from serving.server import ModelServer
    from serving.tracing.tracer import Tracer

logger = logging.getLogger(__name__)

_MAX_KNOWN = 1024
_MOST_INFLATED = 1024
"""What deflate can make of one byte."""


class InferRoute:
    """Decodes, submits and encodes."""

    def __init__(
        self,
        server: ModelServer,
        options: FrontendOptions,
        memory: ClientMemory,
        tracer: Tracer,
    ) -> None:
        self._server = server
        self._tracer = tracer
        self._max_input_size = options.http_max_input_size
        self._limits = DecodeLimits(options.http_max_input_size, memory)
        pattern = options.http_header_forward_pattern
        self._forward = re.compile(pattern) if pattern else None
        self._threads = JsonThreads()
        self._known: dict[tuple[Model, bytes], KnownRequest] = {}
        server.add_state_listener(lambda entry: self._known.clear())  # models go, others come

    def refuse_head(self, request: HttpRequest, content_length: int) -> HttpResponse | None:
        """A JSON body above the limit need not be read to be refused (HTTP-033)."""
        if content_length <= self._max_input_size or HEADER_LENGTH.lower() in request.headers:
            return None
        return error_response(self._too_large(content_length))

    def handle(self, http: HttpRequest, reply: Reply, name: str, version: int) -> Cancel | None:
        model = self._server.receiver(name, version)
        json_size = _json_size(http)
        if json_size and self._forward is None:
            known = self._known.get((model, bytes(http.body[:json_size])))
            if known is not None and known.body_size == len(http.body):
                request = known.request(http.body, name, version)
                decoded = DecodedRequest(request, is_binary_by_default=True, known=known)
                return self._submit(http, reply, model, decoded)
        if model.spec.is_decoupled:
            raise UnsupportedError(
                f"model '{name}' is decoupled: it may send any number of responses, which HTTP "
                "infer cannot carry; use the gRPC stream"
            )
        if _is_big(http):
            decoding = _Decoding(reply, partial(self._submit, http, reply, model))
            self._threads.run(lambda: self._decode(http, model, version), decoding.done)
            return decoding.cancel
        decoded = self._decode(http, model, version)
        cancel = self._submit(http, reply, model, decoded)
        if json_size:
            self._keep(http.body, json_size, model, decoded)
        return cancel

    def _keep(
        self, body: memoryview, json_size: int, model: Model, decoded: DecodedRequest
    ) -> None:
        """The next request may be equal but for its binary data."""
        known = KnownRequest.of(
            decoded.request, json_size, len(body), is_binary=decoded.is_binary_by_default
        )
        if known is not None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()  # those that never come again must not keep others out
            self._known[model, bytes(body[:json_size])] = known

    def _submit(
        self, http: HttpRequest, reply: Reply, model: Model, decoded: DecodedRequest
    ) -> Cancel:
        request = decoded.request
        reply = with_load(http, reply, request.model_name, self._server)
        if self._tracer.is_on:
            reply = traced(self._tracer, model.name, http, request, reply)
        coding = b""
        accepted = http.headers.get(b"accept-encoding")
        if accepted is not None:
            coding = compression.choose_coding(accepted.decode("latin-1")).encode()
        answer = _Answer(reply, decoded, model, coding, self._threads)
        request.on_response = answer.on_response
        self._server.infer(request)
        return request.cancel

    def _decode(self, http: HttpRequest, model: Model, version: int) -> DecodedRequest:
        headers = http.headers
        body = http.body
        coding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        if coding and coding != "identity":
            body = memoryview(compression.decompress(body, coding, self._max_input_size))
        length = headers.get(b"inference-header-content-length")
        header_length = None
        if length is not None:
            header_length = parse_header_length(length.decode("latin-1"), len(body))
        elif len(body) > self._max_input_size:
            raise self._too_large(len(body))
        decoded = decode_request(body, header_length, model.spec, version, self._limits)
        if self._forward is not None:
            forward_headers(decoded.request, self._forward, http.raw_headers)
        return decoded

    def _too_large(self, size: int) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the request has {size} bytes of JSON, more than --http-max-input-size allows "
            f"({self._max_input_size}); send tensors as binary data or raise the option"
        )


def _is_big(http: HttpRequest) -> bool:
    """Its JSON takes the loop too long; a compressed body may be a thousand times as large."""
    size = len(http.body)
    if http.headers.get(b"content-encoding", b"identity") != b"identity":
        return size * _MOST_INFLATED >= BIG_BYTES
    if size < BIG_BYTES:
        return False
    length = http.headers.get(b"inference-header-content-length", b"")
    return not length.isdigit() or int(length[:20]) >= BIG_BYTES


def _json_size(http: HttpRequest) -> int:
    """Of a body with binary data behind its JSON; 0 where it may not be known by its bytes."""
    length = http.headers.get(HEADER_LENGTH_KEY, b"")
    if len(length) > 4 or not length.isdigit() or b"content-encoding" in http.headers:
        return 0
    return int(length)


def _known_answer(http: HttpResponse, sizes: list[int]) -> KnownAnswer:
    head = render_head(http, framing=b"Content-Length: %d\r\n" % http.size, keep_alive=True)
    return KnownAnswer(head, bytes(http.parts[0]), sizes, http.headers)


class _Decoding:
    """A request whose body a thread decodes; submitted afterwards, unless it was cancelled."""

    __slots__ = ("_cancel", "_is_cancelled", "_reply", "_submit")

    def __init__(self, reply: Reply, submit: Callable[[DecodedRequest], Cancel]) -> None:
        self._reply = reply
        self._submit = submit
        self._cancel: Cancel | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._cancel is not None:
            self._cancel()

    def done(self, decoding: asyncio.Future[DecodedRequest]) -> None:
        error = decoding.exception()
        if self._is_cancelled:
            return
        try:
            if error is not None:
                raise error
            self._cancel = self._submit(decoding.result())
        except ServingError as problem:
            self._reply(error_response(problem))
        except Exception:
            logger.exception("cannot decode a request")
            self._reply(text_error(500, "internal error, see the server's log"))


class _Answer:
    """Turns the final response of one request into a reply."""

    __slots__ = ("_coding", "_decoded", "_model", "_reply", "_response", "_threads")

    def __init__(
        self,
        reply: Reply,
        decoded: DecodedRequest,
        model: Model,
        coding: bytes,
        threads: JsonThreads,
    ) -> None:
        self._reply = reply
        self._threads = threads
        self._response: InferenceResponse | None = None
        self._decoded = decoded
        self._model = model
        self._coding = coding

    def on_response(self, response: InferenceResponse) -> None:
        if not response.is_final:
            return  # the model is not decoupled; the core refuses a second response
        # Request and answer point at each other: let go, or bodies wait for the cycle collector.
        self._decoded.request.on_response = None
        known = None if self._coding else self._decoded.known
        found = None if known is None else known.answer(response)
        if known is not None and found is not None:
            self._reply(self._ready(known, *found, response))
        elif response.error is None and self._is_big(response):
            # Kept here too: its memory must be given back on the loop, not in the thread.
            self._response = response
            self._threads.run(lambda: self._rendered(response), self._done)
        else:
            self._reply(self._rendered(response))

    def _ready(
        self,
        known: KnownRequest,
        key: AnswerKey,
        data: list[Body],
        response: InferenceResponse,
    ) -> HttpResponse:
        """The head and the JSON are those of others like it that have gone out before."""
        answer = known.answers.get(key)
        sizes = list(map(len, data))
        if answer is not None and answer.sizes == sizes:
            return HttpResponse(200, [answer.text, *data], OCTETS, answer.headers, head=answer.head)
        http = self._rendered(response)
        if http.content_type is OCTETS and len(http.parts) == 1 + len(data):
            known.keep_answer(key, _known_answer(http, sizes))
        return http

    def _is_big(self, response: InferenceResponse) -> bool:
        if json_elements(self._decoded, response) >= BIG_ELEMENTS:
            return True
        size = sum(tensor.array.nbytes for tensor in response.outputs) if self._coding else 0
        return size >= BIG_BYTES

    def _done(self, rendering: asyncio.Future[HttpResponse]) -> None:
        self._response = None
        self._reply(rendering.result())

    def _rendered(self, response: InferenceResponse) -> HttpResponse:
        try:
            return self._render(response)
        except ServingError as error:
            return error_response(error)
        except Exception:
            logger.exception(
                "%s cannot encode a response model=%s",
                request_tag(response.id),
                response.model_name,
            )
            return text_error(500, "internal error while encoding the response")

    def _render(self, response: InferenceResponse) -> HttpResponse:
        if response.error is not None:
            return error_response(response.error)
        model = self._model
        encoded = encode_response(self._decoded, response, model.spec, model.labels_of)
        http = HttpResponse(200, encoded.parts, JSON)
        if encoded.is_binary:
            http.content_type = OCTETS
            http.headers.append((HEADER_LENGTH, b"%d" % encoded.json_size))
        if self._coding:
            http.parts = [compression.compress(encoded.parts, self._coding.decode())]
            http.headers.append((b"Content-Encoding", self._coding))
        return http
