"""Shapes of the engine builds' REST API, for checks of input and for the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.core.bodies import Body
from console.engines.choices import Library, Precision
from console.engines.models import EngineBuild


class Shape(serializers.ListField):
    child = serializers.IntegerField(min_value=0, max_value=2**31 - 1)
    max_length = 8


class ProfileField(serializers.DictField):
    """Input -> its smallest, best and largest shape."""

    child = serializers.ListField(child=Shape(), min_length=3, max_length=3)


class BuildRequest(Body):
    version = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0,
        help_text="Whose ONNX file; null: the newest.",
    )  # fmt: skip
    target = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=128,
        help_text="The model that gets the engine; empty: the model's name with _trt.",
    )  # fmt: skip
    worker_id = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=255,
        help_text="Empty: a connected one, with a GPU where there is one.",
    )  # fmt: skip
    library = serializers.ChoiceField(choices=Library.choices, required=False, default="")
    precision = serializers.ChoiceField(
        choices=Precision.choices, required=False, default=Precision.MODEL
    )
    profiles = serializers.ListField(
        child=ProfileField(), required=False, allow_null=True, default=None, max_length=16,
        help_text="Input -> [smallest, best, largest]; null: out of the model's signature.",
    )  # fmt: skip
    workspace_bytes = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=2**62 - 1, help_text="0: no limit."
    )
    capabilities = serializers.ListField(
        child=serializers.CharField(max_length=8), required=False, default=list, max_length=16,
        help_text="Compute capabilities, as 8.9; empty: the GPU of the worker.",
    )  # fmt: skip
    is_version_compatible = serializers.BooleanField(required=False, default=False)


class EngineBuildShape(serializers.ModelSerializer[EngineBuild]):
    actor = serializers.SlugRelatedField[Any](
        slug_field="username", read_only=True, allow_null=True
    )

    class Meta:
        model = EngineBuild
        fields = (
            "id", "model", "version", "target", "worker_id", "library", "precision", "profiles",
            "workspace_bytes", "capabilities", "is_version_compatible", "state", "phase",
            "fraction", "error", "target_version", "engine_bytes", "builder", "actor",
            "created_at", "sent_at", "finished_at",
        )  # fmt: skip
