"""REST: models on disk, their files, config, revisions, version policy, deletes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core.bodies import checked
from console.core.permissions import RoleAdmin, RoleViewer
from console.repository import checks, configs, selectors, services
from console.repository.download import Download
from console.repository.serializers import (
    ConfigSave,
    ConfigShape,
    EntryShape,
    PolicyShape,
    RevisionShape,
    SavedConfigShape,
    TrashShape,
)
from console.repository.upload_api import WHOLE_CONFIG, ReadOrOperate
from serving.errors import NotFoundError

PATH = OpenApiParameter("path", str, description="Folder within the model; empty for the model.")

TWO_VERSIONS = OpenApiExample(
    "The two newest versions", {"policy": {"latest": {"num_versions": 2}}}, request_only=True
)


class ReadOrDelete(APIView):
    """Viewers read, admins delete."""

    def get_permissions(self) -> list[Any]:
        return [RoleAdmin() if self.request.method == "DELETE" else RoleViewer()]


class Version(ReadOrDelete):
    @extend_schema(responses=EntryShape(many=True))
    def get(self, request: Request, model: str, version: int) -> Response:
        """The files of a version."""
        listing = selectors.list_directory(f"{model}/{version}")
        return Response(EntryShape(listing.entries, many=True).data)

    @extend_schema(responses={200: TrashShape})
    def delete(self, request: Request, model: str, version: int) -> Response:
        """Move the version into the trash; one that is served is refused."""
        entry = services.delete_version(actor=request.user, model=model, version=version)
        return Response(TrashShape(entry).data)


class Files(ReadOrDelete):
    @extend_schema(parameters=[PATH], responses=EntryShape(many=True))
    def get(self, request: Request, model: str) -> Response:
        """What lies in a folder of the model."""
        configs.model_directory(model)
        listing = selectors.list_directory(f"{model}/{request.query_params.get('path', '')}")
        return Response(EntryShape(listing.entries, many=True).data)

    @extend_schema(responses={200: TrashShape})
    def delete(self, request: Request, model: str) -> Response:
        """Move the whole model into the trash; one that is served is refused."""
        entry = services.delete_model(actor=request.user, model=model)
        return Response(TrashShape(entry).data)


class File(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request: Request, model: str, path: str) -> Download:
        """Download one file."""
        configs.model_directory(model)
        found = selectors.resolve(f"{model}/{path}")
        if not found.is_file():
            raise NotFoundError(f"'{model}/{path}' is a folder.")
        return Download(found)


class Config(ReadOrOperate):
    @extend_schema(responses=ConfigShape)
    def get(self, request: Request, model: str) -> Response:
        """The text on disk, its sha256 for a later PUT, and what the checks say."""
        text = services.read_config(model)
        findings = checks.check_directory(configs.model_directory(model))
        return Response(_config_body(text, checks.as_rows(findings)))

    @extend_schema(request=ConfigSave, responses=SavedConfigShape, examples=[WHOLE_CONFIG])
    def put(self, request: Request, model: str) -> Response:
        """Save a text without errors; 400 carries the findings, 409 the text on disk."""
        data = checked(ConfigSave, request)
        saved = services.save_config(actor=request.user, model=model, **data)
        return Response(SavedConfigShape(saved).data)


def _config_body(text: str | None, findings: list[dict[str, Any]]) -> dict[str, Any]:
    return {"text": text, "sha256": services.config_sha256(text), "findings": findings}


class Revisions(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses=RevisionShape(many=True))
    def get(self, request: Request, model: str) -> Response:
        return Response(RevisionShape(selectors.revisions_for(model)[:200], many=True).data)


class Revision(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses=RevisionShape)
    def get(self, request: Request, model: str, number: int) -> Response:
        return Response(RevisionShape(selectors.get_revision(model, number)).data)


class Policy(ReadOrOperate):
    @extend_schema(request=PolicyShape, responses=SavedConfigShape, examples=[TWO_VERSIONS])
    def put(self, request: Request, model: str) -> Response:
        """Change version_policy in config.pbtxt, and nothing else in it."""
        data = checked(PolicyShape, request)
        saved = services.set_version_policy(actor=request.user, model=model, **data)
        return Response(SavedConfigShape(saved).data)
