"""REST: load and unload, deployments with roll back and retry, desired state, workers."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core import workers as fleet
from console.core.bodies import checked
from console.core.permissions import RoleOperator, RoleViewer
from console.deployments import selectors, services
from console.deployments.choices import Action, DeploymentState
from console.deployments.serializers import (
    DeploymentDetailShape,
    DeploymentShape,
    DesiredShape,
    LoadRequest,
    UnloadRequest,
    WorkerShape,
)
from serving.errors import NotFoundError, UnavailableError

MAX_ROWS = 500
STATES = [*DeploymentState.values, "open"]
FILTERS = [
    OpenApiParameter("model", str, description="Deployments of one model."),
    OpenApiParameter("state", str, enum=STATES),
    OpenApiParameter("action", str, enum=Action.values),
    OpenApiParameter("limit", int, description=f"1 to {MAX_ROWS}, 50 without it."),
    OpenApiParameter("before", int, description="Only deployments with a smaller id."),
]


class Load(APIView):
    permission_classes = (RoleOperator,)

    @extend_schema(request=LoadRequest, responses={202: DeploymentShape})
    def post(self, request: Request, model: str) -> Response:
        """Want the model served and load it; follow the deployment for the outcome."""
        data = checked(LoadRequest, request)
        deployment = services.load_model(actor=request.user, model=model, **data)
        return _started(deployment.pk)


class Unload(APIView):
    permission_classes = (RoleOperator,)

    @extend_schema(request=UnloadRequest, responses={202: DeploymentShape})
    def post(self, request: Request, model: str) -> Response:
        """Want the model, or one version of it, no longer served."""
        data = checked(UnloadRequest, request)
        deployment = services.unload_model(actor=request.user, model=model, **data)
        return _started(deployment.pk)


def _started(deployment_id: int) -> Response:
    return Response(DeploymentDetailShape(selectors.get(deployment_id)).data, status=202)


class Deployments(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(parameters=FILTERS, responses=DeploymentShape(many=True))
    def get(self, request: Request) -> Response:
        """Newest first; page with `before`."""
        values = request.query_params
        state, action = values.get("state", ""), values.get("action", "")
        if state and state not in STATES:
            raise serializers.ValidationError({"state": [f"Use one of {', '.join(STATES)}."]})
        if action and action not in Action.values:
            raise serializers.ValidationError(
                {"action": [f"Use one of {', '.join(Action.values)}."]}
            )
        rows = selectors.deployments(selectors.Filters(state=state, action=action))
        if values.get("model"):
            rows = rows.filter(model=values["model"].replace("\0", " "))
        if values.get("before"):
            rows = rows.filter(pk__lt=_number(values["before"], "before", 1 << 62))
        limit = _number(values.get("limit", "50"), "limit", MAX_ROWS)
        return Response(DeploymentShape(rows[:limit], many=True).data)


def _number(text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and 1 <= int(text) <= most):
        raise serializers.ValidationError({name: [f"Write a whole number from 1 to {most}."]})
    return int(text)


class DeploymentDetail(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses=DeploymentDetailShape)
    def get(self, request: Request, deployment_id: int) -> Response:
        return Response(DeploymentDetailShape(selectors.get(deployment_id)).data)


class Rollback(APIView):
    permission_classes = (RoleOperator,)

    @extend_schema(request=None, responses={202: DeploymentDetailShape})
    def post(self, request: Request, deployment_id: int) -> Response:
        """Restore config, versions and desired state from before this deployment."""
        old = selectors.get(deployment_id)
        return _started(services.rollback(actor=request.user, deployment=old).pk)


class Retry(APIView):
    permission_classes = (RoleOperator,)

    @extend_schema(request=None, responses={202: DeploymentDetailShape})
    def post(self, request: Request, deployment_id: int) -> Response:
        """Do the same again, as a new deployment."""
        old = selectors.get(deployment_id)
        return _started(services.retry(actor=request.user, deployment=old).pk)


class Desired(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses=DesiredShape(many=True))
    def get(self, request: Request) -> Response:
        """What should be served, whatever is served now."""
        return Response(DesiredShape(selectors.desired_all(), many=True).data)


class Workers(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses=WorkerShape(many=True))
    def get(self, request: Request) -> Response:
        workers, problem = fleet.known()
        if problem:
            raise UnavailableError(problem)
        return Response(WorkerShape(workers, many=True).data)


class Worker(APIView):
    permission_classes = (RoleViewer,)

    @extend_schema(responses=WorkerShape)
    def get(self, request: Request, worker_id: str) -> Response:
        workers, problem = fleet.known()
        if problem:
            raise UnavailableError(problem)
        for worker in workers:
            if worker.worker_id == worker_id:
                return Response(WorkerShape(worker).data)
        raise NotFoundError(f"There is no worker '{worker_id}'.")


class Schema(SpectacularAPIView):
    permission_classes = (RoleViewer,)


class SwaggerPage(SpectacularSwaggerSplitView):
    """The interactive pages; their script comes as a file of its own, as the CSP wants it."""

    permission_classes = (RoleViewer,)
    template_name = "deployments/swagger.html"
    url_name = "api-schema"
