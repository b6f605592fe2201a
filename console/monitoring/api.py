"""REST: `GET /api/v1/metrics/series`, what the charts start from."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core.permissions import RoleViewer
from console.monitoring import selectors

RANGES = {"5m": 300, "15m": 900, "1h": 3600, "24h": 86_400}


class SeriesQuery(serializers.Serializer[Any]):
    range = serializers.ChoiceField(
        choices=list(RANGES),
        default="5m",
        error_messages={"invalid_choice": "{input} is not a range: use 5m, 15m, 1h or 24h."},
    )
    model = serializers.CharField(required=False, allow_blank=True, max_length=255)
    worker = serializers.CharField(required=False, allow_blank=True, max_length=120)


class SeriesView(APIView):
    permission_classes = [RoleViewer]

    @extend_schema(
        summary="Metrics over time",
        description="Throughput, errors, latency, queues, batches, CPU, memory, GPUs.",
        parameters=[
            OpenApiParameter("range", str, enum=list(RANGES), description="How far back."),
            OpenApiParameter("model", str, description="Only this model."),
            OpenApiParameter("worker", str, description="Only this worker."),
        ],
        responses={200: dict},
    )
    def get(self, request: Request) -> Response:
        query = SeriesQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        wanted = query.validated_data
        body = selectors.series(
            wanted.get("model") or None, wanted.get("worker") or None, RANGES[wanted["range"]]
        )
        return Response(body)
