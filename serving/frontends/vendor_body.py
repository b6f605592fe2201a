"""SageMaker's and Vertex AI's content type, which tells where binary tensors begin.

The platforms pass no headers of their own on, so that the length of the JSON part stands in the
content type: application/vnd.<vendor>-triton.binary+json;json-header-size=N. `translated` makes the
ordinary request and reply of it. Loop thread. Source: spec TOOL-080, TOOL-081.
"""

from __future__ import annotations

import re
from dataclasses import replace

from serving.frontends.http_messages import (
    HEADER_LENGTH,
    HttpRequest,
    HttpResponse,
    Reply,
    ResponseStream,
    Routes,
)

_LENGTH = HEADER_LENGTH.lower()
_TYPE = re.compile(
    rb"\s*application/vnd\.(?P<vendor>sagemaker|vertex-ai)-triton\.binary\+json\s*;"
    rb"\s*json-header-size\s*=\s*(?P<size>[^;\s]+)\s*",
    re.IGNORECASE,
)


def refuse_head(routes: Routes, request: HttpRequest, content_length: int) -> HttpResponse | None:
    """A body above the limit of JSON is not read, unless it has binary tensors (HTTP-033)."""
    if _TYPE.fullmatch(request.headers.get(b"content-type", b"")):
        return None
    return routes.refuse_head(replace(request, target=b"/v2/models/any/infer"), content_length)


def translated(
    request: HttpRequest, target: str, reply: Reply, vendor: bytes, method: bytes = b""
) -> tuple[HttpRequest, Reply]:
    """The request as the HTTP port would get it, for another path.

    `vendor`: of binary answers to a request that names none.
    """
    headers = request.headers
    match = _TYPE.fullmatch(headers.get(b"content-type", b""))
    if match is not None:
        vendor = match["vendor"].lower()
        headers = {**headers, _LENGTH: match["size"]}
    ordinary = replace(
        request,
        method=method or request.method,
        target=target.encode("latin-1"),
        headers=headers,
    )
    return ordinary, _VendorReply(reply, vendor)


class _VendorReply:
    def __init__(self, reply: Reply, vendor: bytes) -> None:
        self._reply = reply
        self._vendor = vendor

    def __call__(self, response: HttpResponse) -> None:
        sizes = [value for name, value in response.headers if name == HEADER_LENGTH]
        if sizes:
            response.head = b""
            response.content_type = b"application/vnd.%b-triton.binary+json;json-header-size=%b" % (
                self._vendor,
                sizes[0],
            )
        self._reply(response)

    def start_stream(self, response: HttpResponse) -> ResponseStream:
        return self._reply.start_stream(response)
