"""REST: models as the console sees them, and the checks of a config without saving it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.catalog import config_view, selectors
from console.catalog.config_pages import base_url
from console.catalog.filters import ModelFilters
from console.catalog.selectors import ModelRow
from console.core.bodies import Body, checked
from console.core.permissions import RoleViewer
from console.repository import configs, services
from serving.errors import NotFoundError


class RatesSerializer(serializers.Serializer[Any]):
    inferences_per_s = serializers.FloatField()
    p50_us = serializers.FloatField(allow_null=True)
    p95_us = serializers.FloatField(allow_null=True)
    p99_us = serializers.FloatField(allow_null=True)
    queued = serializers.IntegerField()
    mean_batch = serializers.FloatField(allow_null=True)


class PlacementSerializer(serializers.Serializer[Any]):
    worker_id = serializers.CharField()
    version = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.CharField()
    backend = serializers.CharField()
    instances = serializers.IntegerField()


class ModelSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())
    backend = serializers.CharField()
    versions = serializers.ListField(child=serializers.IntegerField())
    served_versions = serializers.ListField(
        child=serializers.CharField(), source="observed.served_versions"
    )
    workers = serializers.ListField(child=serializers.CharField(), source="observed.worker_ids")
    rates = RatesSerializer(allow_null=True)
    is_on_disk = serializers.BooleanField()


class ModelDetailSerializer(ModelSerializer):
    placements = PlacementSerializer(many=True, source="observed.placements")


class CheckRequestSerializer(Body):
    text = serializers.CharField(
        allow_blank=True, trim_whitespace=False, max_length=configs.MAX_CONFIG_BYTES
    )


class ModelsView(APIView):
    permission_classes = [RoleViewer]

    @extend_schema(
        operation_id="models_list",
        parameters=[
            OpenApiParameter(name, OpenApiTypes.STR) for name in ("q", "state", "backend", "worker")
        ],
        responses=ModelSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Every model of the repository and of the workers, with its state and rates."""
        rows = selectors.model_rows(ModelFilters.of(request.query_params))
        return Response(ModelSerializer(rows, many=True).data)


class ModelView(APIView):
    permission_classes = [RoleViewer]

    @extend_schema(operation_id="models_read", responses=ModelDetailSerializer)
    def get(self, request: Request, name: str) -> Response:
        """One model with what every worker reports about it."""
        row: ModelRow = selectors.model_header(name).row
        return Response(ModelDetailSerializer(row).data)


class CheckConfigView(APIView):
    permission_classes = [RoleViewer]

    @extend_schema(
        operation_id="models_check_config",
        request=CheckRequestSerializer,
        responses=OpenApiTypes.OBJECT,
    )
    def post(self, request: Request, name: str) -> Response:
        """Findings about a text as this model's config.pbtxt, and what it means. Saves nothing."""
        view = inspect(name, checked(CheckRequestSerializer, request)["text"])
        return Response(check_body(view))


class ExplainView(APIView):
    permission_classes = [RoleViewer]

    @extend_schema(operation_id="models_explain", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, name: str) -> Response:
        """What a request to this model must look like, by the config on disk."""
        view = inspect(name, None, base_url(request))
        if view.explanation is None:
            raise NotFoundError(f"The config of '{name}' has errors or no inputs: mend it first.")
        return Response(config_view.explanation_body(view))


def inspect(name: str, text: str | None, address: str = "") -> config_view.ConfigView:
    """Raises NotFoundError for an unknown model."""
    directory = configs.model_directory(name)
    saved = services.read_config(name)
    return config_view.inspect(
        directory,
        text=saved if text is None else text,
        saved=saved or "",
        base_url=address,
    )


def check_body(view: config_view.ConfigView) -> dict[str, Any]:
    return {
        "is_valid": not view.has_errors,
        "findings": view.findings,
        "effective": [
            {"field": item.path, "value": item.value, "origin": item.origin}
            for item in view.effective
        ],
        "effective_text": view.effective_text,
    }
