"""REST: which backends the workers have."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core import workers as door
from console.core.permissions import RoleViewer
from console.fleet.backends import worker_backends
from serving.errors import UnavailableError


class BackendShape(serializers.Serializer[Any]):
    """A backend of one worker; `install` is the command that brings what it lacks."""

    name = serializers.CharField(source="backend.name")
    origin = serializers.CharField(source="backend.origin")
    location = serializers.CharField(source="backend.location")
    package = serializers.CharField(source="backend.package")
    version = serializers.CharField(source="backend.version")
    devices = serializers.ListField(child=serializers.CharField(), source="backend.devices")
    problem = serializers.CharField(source="backend.problem")
    install = serializers.CharField(source="backend.install")
    is_installed = serializers.SerializerMethodField()
    models = serializers.ListField(child=serializers.CharField())

    def get_is_installed(self, row: Any) -> bool:
        return not row.is_missing


class WorkerBackendsShape(serializers.Serializer[Any]):
    worker_id = serializers.CharField(source="info.worker_id")
    backends = BackendShape(many=True, source="rows")


class Backends(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(
        operation_id="backends_list",
        parameters=[OpenApiParameter("worker", OpenApiTypes.STR)],
        responses=WorkerBackendsShape(many=True),
    )
    def get(self, request: Request) -> Response:
        """Every backend of every connected worker: runtime, version, devices, models, problems."""
        infos, problem = door.known()
        if problem:
            raise UnavailableError(problem)
        found = worker_backends(infos, worker=request.query_params.get("worker", ""))
        return Response(WorkerBackendsShape(found, many=True).data)
