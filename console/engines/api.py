"""REST: build an engine, follow it, cancel it."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core.bodies import checked
from console.core.permissions import RoleOperator, RoleViewer
from console.engines import selectors, services
from console.engines.choices import BuildState
from console.engines.serializers import BuildRequest, EngineBuildShape
from console.engines.services import Wish

MAX_ROWS = 500
STATES = [*BuildState.values, "open"]
FILTERS = [
    OpenApiParameter("model", str, description="Builds out of, or into, one model."),
    OpenApiParameter("state", str, enum=STATES),
]


class Build(APIView):
    permission_classes = (RoleOperator,)

    @extend_schema(request=BuildRequest, responses={202: EngineBuildShape})
    def post(self, request: Request, model: str) -> Response:
        """Build a TensorRT engine out of the model's ONNX file; follow it for the outcome."""
        wish = Wish(model=model, **checked(BuildRequest, request))
        started = services.build_engine(actor=request.user, wish=wish)
        return Response(EngineBuildShape(started).data, status=202)


class Builds(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(parameters=FILTERS, responses=EngineBuildShape(many=True))
    def get(self, request: Request) -> Response:
        """The newest 500."""
        state = request.query_params.get("state", "")
        if state and state not in STATES:
            raise serializers.ValidationError({"state": [f"Use one of {', '.join(STATES)}."]})
        rows = selectors.builds(request.query_params.get("model", ""), state)
        return Response(EngineBuildShape(rows[:MAX_ROWS], many=True).data)


class BuildDetail(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses=EngineBuildShape)
    def get(self, request: Request, build: int) -> Response:
        return Response(EngineBuildShape(selectors.get(build)).data)


class Cancel(APIView):
    permission_classes = (RoleOperator,)

    @extend_schema(request=None, responses={202: EngineBuildShape})
    def post(self, request: Request, build: int) -> Response:
        """Stop it; what waits is never begun."""
        services.cancel(actor=request.user, build=selectors.get(build))
        return Response(EngineBuildShape(selectors.get(build)).data, status=202)
