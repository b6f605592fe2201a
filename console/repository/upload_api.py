"""REST: resumable uploads. `POST` opens one, `PATCH content` appends, `POST complete` checks it."""

from __future__ import annotations

from typing import IO, Any, cast
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core.bodies import checked
from console.core.exceptions import error_body
from console.core.permissions import RoleOperator, RoleViewer
from console.repository import selectors, services, staging
from console.repository.models import Upload
from console.repository.names import NameRefusedError
from console.repository.serializers import (
    ConfigText,
    OffsetShape,
    UploadChange,
    UploadCreate,
    UploadPublish,
    UploadShape,
)
from serving.errors import InvalidArgumentError

PATH = OpenApiParameter("path", str, description="File within a folder; empty for a single file.")
OFFSET = OpenApiParameter(
    "Upload-Offset",
    int,
    OpenApiParameter.HEADER,
    required=True,
    description="Where it continues.",
    examples=[OpenApiExample("From the start", 0)],
)
CONTENT = OpenApiExample(
    "The first bytes", "PK", request_only=True, media_type="application/octet-stream"
)
ANOTHER_NAME = OpenApiExample(
    "Another name and the next free version",
    {"model": "resnet", "version": "next"},
    request_only=True,
)
ON_DISK_ONLY = OpenApiExample("Publish, and load later", {"load": False}, request_only=True)
WHOLE_CONFIG = OpenApiExample(
    "The whole text",
    {
        "text": 'backend: "identity"\n'
        "max_batch_size: 4\n"
        'input { name: "IN0" data_type: TYPE_FP32 dims: [ 3 ] }\n'
        'output { name: "OUT0" data_type: TYPE_FP32 dims: [ 3 ] }\n'
    },
    request_only=True,
)


class ReadOrOperate(APIView):
    """Viewers read, operators write."""

    def get_permissions(self) -> list[Any]:
        safe = self.request.method in ("GET", "HEAD", "OPTIONS")
        return [RoleViewer() if safe else RoleOperator()]


class Uploads(ReadOrOperate):
    @extend_schema(responses=UploadShape(many=True))
    def get(self, request: Request) -> Response:
        rows = selectors.recent_uploads(100).prefetch_related("deployments")
        return Response(UploadShape(rows, many=True).data)

    @extend_schema(request=UploadCreate, responses={201: UploadShape})
    def post(self, request: Request) -> Response:
        """Open an upload; send its bytes with `PATCH content`, then `POST complete`."""
        data = checked(UploadCreate, request)
        upload = services.create_upload(
            actor=request.user, announced_bytes=data.pop("bytes"), **data
        )
        return Response(UploadShape(upload).data, status=201)


class UploadDetail(ReadOrOperate):
    @extend_schema(responses=UploadShape)
    def get(self, request: Request, upload_id: UUID) -> Response:
        return Response(UploadShape(selectors.get_upload(upload_id)).data)

    @extend_schema(request=UploadChange, responses=UploadShape, examples=[ANOTHER_NAME])
    def patch(self, request: Request, upload_id: UUID) -> Response:
        """Another name or version; the upload is checked again."""
        upload = selectors.get_upload(upload_id)
        data = checked(UploadChange, request)
        changed = services.change_wish(
            actor=request.user,
            upload=upload,
            model=data["model"] if "model" in request.data else upload.wished_model,
            version=data["version"] if "version" in request.data else upload.wished_version,
        )
        return Response(UploadShape(changed).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, upload_id: UUID) -> Response:
        """Discard: the staged files are removed."""
        services.discard_upload(actor=request.user, upload=selectors.get_upload(upload_id))
        return Response(status=204)


class UploadContent(ReadOrOperate):
    @extend_schema(parameters=[PATH], responses=OffsetShape)
    def get(self, request: Request, upload_id: UUID) -> Response:
        """How far a file has come, to continue from there."""
        upload = selectors.get_upload(upload_id)
        path = _path(request, upload)
        try:
            offset = staging.area(upload.id).received_bytes(path)
        except NameRefusedError as error:
            raise InvalidArgumentError(str(error)) from error
        return _offset_response(path, offset)

    @extend_schema(
        parameters=[PATH, OFFSET],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=OffsetShape,
        examples=[CONTENT],
    )
    def patch(self, request: Request, upload_id: UUID) -> Response:
        """Append the body at `Upload-Offset`. 409 tells the right offset."""
        upload = selectors.get_upload(upload_id)
        path = _path(request, upload)
        offset = _offset_header(request)
        try:
            # The body as a stream: request.data would read all of it into memory.
            body = cast(IO[bytes], request._request)
            size = services.receive(upload, body, path=path, offset=offset)
        except staging.OffsetMismatchError as error:
            refusal = error_body("offset_mismatch", str(error))
            refusal["error"]["offset"] = error.offset
            return Response(refusal, status=409, headers={"Upload-Offset": str(error.offset)})
        return _offset_response(path, size)


def _path(request: Request, upload: Upload) -> str:
    path: str = request.query_params.get("path", "") or upload.file_name
    if not path:
        text = "Say which file of the folder this is: ?path=1/model.onnx"
        raise serializers.ValidationError({"path": [text]})
    return path


def _offset_header(request: Request) -> int:
    text = request.headers.get("Upload-Offset", "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise serializers.ValidationError(
            {"Upload-Offset": ["Send the header with the number of bytes sent so far, 0 at first."]}
        )
    return int(text)


def _offset_response(path: str, offset: int) -> Response:
    return Response({"path": path, "offset": offset}, headers={"Upload-Offset": str(offset)})


class UploadComplete(ReadOrOperate):
    @extend_schema(request=None, responses={202: UploadShape})
    def post(self, request: Request, upload_id: UUID) -> Response:
        """Everything is sent: unpack and check, in the background."""
        upload = selectors.get_upload(upload_id)
        done = services.complete_upload(actor=request.user, upload=upload)
        done.refresh_from_db()
        return Response(UploadShape(done).data, status=202)


class UploadConfig(ReadOrOperate):
    @extend_schema(request=ConfigText, responses=UploadShape, examples=[WHOLE_CONFIG])
    def put(self, request: Request, upload_id: UUID) -> Response:
        """Replace config.pbtxt within the upload; it is checked again."""
        data = checked(ConfigText, request)
        upload = services.edit_config(
            actor=request.user, upload=selectors.get_upload(upload_id), **data
        )
        return Response(UploadShape(upload).data)


class UploadPublished(ReadOrOperate):
    @extend_schema(request=UploadPublish, responses=UploadShape, examples=[ON_DISK_ONLY])
    def post(self, request: Request, upload_id: UUID) -> Response:
        """Move the checked files into the repository, and load them when asked to."""
        data = checked(UploadPublish, request)
        upload = selectors.get_upload(upload_id)
        services.publish(actor=request.user, upload=upload, load=data["load"])
        return Response(UploadShape(upload).data)
