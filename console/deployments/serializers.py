"""Shapes of the deployments' REST API, for checks of input and for the OpenAPI schema."""

from __future__ import annotations

from typing import Any

import msgspec
from rest_framework import serializers

from console.core.bodies import Body
from console.deployments.models import Deployment, DeploymentTarget, DesiredModel


class LoadRequest(Body):
    versions = serializers.ListField(
        child=serializers.IntegerField(min_value=0),
        required=False,
        allow_null=True,
        allow_empty=False,
        default=None,
        help_text="Exactly these; null: by the version policy.",
    )
    worker_ids = serializers.ListField(
        child=serializers.CharField(max_length=255),
        required=False,
        allow_null=True,
        allow_empty=False,
        default=None,
        help_text="Null: every worker, those that come later included.",
    )
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)


class UnloadRequest(Body):
    version = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0, help_text="Null: the model."
    )
    worker_ids = serializers.ListField(
        child=serializers.CharField(max_length=255),
        required=False,
        allow_null=True,
        allow_empty=False,
        default=None,
    )
    unload_dependents = serializers.BooleanField(required=False, default=False)
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)


class TargetShape(serializers.ModelSerializer[DeploymentTarget]):
    class Meta:
        model = DeploymentTarget
        fields = (
            "worker_id", "action", "versions", "state", "error", "ready_versions", "sent_at",
            "finished_at",
        )  # fmt: skip


class PhaseShape(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]
    state = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True)
    detail = serializers.CharField(allow_blank=True)


class DeploymentShape(serializers.ModelSerializer[Deployment]):
    actor = serializers.SlugRelatedField[Any](
        slug_field="username", read_only=True, allow_null=True
    )
    revision = serializers.SlugRelatedField[Any](slug_field="number", read_only=True)
    previous_revision = serializers.SlugRelatedField[Any](slug_field="number", read_only=True)

    class Meta:
        model = Deployment
        fields = (
            "id", "action", "model", "state", "trigger", "actor", "reason", "versions",
            "worker_ids", "unload_dependents", "revision", "previous_revision", "desired",
            "previous_desired", "previous_versions", "upload", "retry_of", "rollback_of", "error",
            "created_at", "started_at", "finished_at",
        )  # fmt: skip


class DeploymentDetailShape(DeploymentShape):
    targets = TargetShape(many=True, read_only=True)
    phases = serializers.SerializerMethodField()

    class Meta:
        model = Deployment
        fields = (*DeploymentShape.Meta.fields, "targets", "phases")

    def get_phases(self, deployment: Deployment) -> list[dict[str, Any]]:
        from console.deployments import selectors

        return PhaseShape(selectors.phases(deployment), many=True).data  # type: ignore[return-value]


class DesiredShape(serializers.ModelSerializer[DesiredModel]):
    updated_by = serializers.SlugRelatedField[Any](
        slug_field="username", read_only=True, allow_null=True
    )
    revision = serializers.SlugRelatedField[Any](slug_field="number", read_only=True)

    class Meta:
        model = DesiredModel
        fields = (
            "model", "worker_id", "state", "versions", "revision", "deployment", "updated_by",
            "updated_at",
        )  # fmt: skip


class WorkerShape(serializers.Serializer[Any]):
    """`workers.messages.WorkerInfo` as it is."""

    worker_id = serializers.CharField()
    host = serializers.CharField()
    pid = serializers.IntegerField()
    version = serializers.CharField()
    state = serializers.CharField()
    started_at = serializers.FloatField()
    last_seen = serializers.FloatField()
    http_url = serializers.CharField()
    grpc_url = serializers.CharField()
    metrics_url = serializers.CharField()
    repositories = serializers.ListField(child=serializers.CharField())
    models = serializers.ListField(child=serializers.DictField())
    devices = serializers.ListField(child=serializers.DictField())

    def to_representation(self, instance: Any) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(instance)
        return fields
