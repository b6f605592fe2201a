"""Shapes of the repository's REST API, for checks of input and for the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.core.bodies import Body
from console.repository.configs import MAX_CONFIG_BYTES
from console.repository.models import ConfigRevision, Upload


class UploadCreate(Body):
    file_name = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        max_length=255,
        help_text="Name of the archive, model file or config; empty for a folder of files.",
    )
    model = serializers.CharField(required=False, allow_blank=True, default="", max_length=128)
    version = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        max_length=24,
        help_text="Empty: as in the files; 'next'; or a number.",
    )
    bytes = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=0, help_text="Size in all."
    )
    sha256 = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)
    publish = serializers.BooleanField(
        required=False, default=False, help_text="Publish when the checks find no error."
    )
    load = serializers.BooleanField(
        required=False, default=False, help_text="Publish, then load on every worker."
    )


class UploadChange(Body):
    model = serializers.CharField(required=False, allow_blank=True, default="", max_length=128)
    version = serializers.CharField(required=False, allow_blank=True, default="", max_length=24)


class UploadPublish(Body):
    load = serializers.BooleanField(required=False, default=False)


class RepairRow(serializers.Serializer[Any]):
    """One edit of the finding's file; lines and columns count from 1, the end is exclusive."""

    title = serializers.CharField()
    kind = serializers.ChoiceField(choices=["replace", "insert", "remove"])
    line = serializers.IntegerField()
    column = serializers.IntegerField()
    end_line = serializers.IntegerField()
    end_column = serializers.IntegerField()
    text = serializers.CharField()


class FindingRow(serializers.Serializer[Any]):
    severity = serializers.ChoiceField(choices=["error", "warning", "note"])
    message = serializers.CharField()
    hint = serializers.CharField()
    field = serializers.CharField()
    line = serializers.IntegerField()
    column = serializers.IntegerField()
    file = serializers.CharField()
    code = serializers.CharField()
    # Rows that were stored before there were repairs lack it.
    repair = RepairRow(required=False, allow_null=True)


class UploadShape(serializers.ModelSerializer[Upload]):
    actor = serializers.SlugRelatedField[Any](
        slug_field="username", read_only=True, allow_null=True
    )
    findings = FindingRow(many=True, read_only=True)
    versions = serializers.ListField(child=serializers.IntegerField(), read_only=True)
    can_publish = serializers.BooleanField(read_only=True)
    page = serializers.CharField(source="get_absolute_url", read_only=True)
    deployments = serializers.PrimaryKeyRelatedField[Any](many=True, read_only=True)

    class Meta:
        model = Upload
        fields = (
            "id", "state", "actor", "file_name", "wished_model", "wished_version", "model",
            "versions", "announced_bytes", "received_bytes", "findings", "manifest", "config_text",
            "config_source", "error", "can_publish", "publish_when_checked", "load_when_published",
            "deployments", "page", "created_at", "checked_at", "published_at",
        )  # fmt: skip
        read_only_fields = fields


class OffsetShape(serializers.Serializer[Any]):
    path = serializers.CharField()
    offset = serializers.IntegerField()


class ConfigText(Body):
    text = serializers.CharField(
        allow_blank=True, trim_whitespace=False, max_length=MAX_CONFIG_BYTES
    )
    expected_sha256 = serializers.CharField(
        required=False,
        allow_null=True,
        default=None,
        help_text="sha256 of the text you read; a text that changed since is a 409.",
    )


class ConfigSave(ConfigText):
    load = serializers.BooleanField(required=False, default=False)
    reason = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)


class ConfigShape(serializers.Serializer[Any]):
    text = serializers.CharField(allow_null=True)
    sha256 = serializers.CharField()
    findings = FindingRow(many=True)


class PolicyShape(Body):
    policy = serializers.DictField(
        help_text='{"latest": {"num_versions": 2}}, {"all": {}} or {"specific": {"versions": [1]}}'
    )
    load = serializers.BooleanField(required=False, default=False)
    expected_sha256 = serializers.CharField(required=False, allow_null=True, default=None)


class SavedConfigShape(serializers.Serializer[Any]):
    revision = serializers.IntegerField(source="revision.number")
    sha256 = serializers.CharField(source="revision.sha256")
    deployment = serializers.IntegerField(source="deployment.pk", allow_null=True, default=None)


class RevisionShape(serializers.ModelSerializer[ConfigRevision]):
    actor = serializers.SlugRelatedField[Any](
        slug_field="username", read_only=True, allow_null=True
    )

    class Meta:
        model = ConfigRevision
        fields = (
            "model", "number", "text", "is_absent", "sha256", "source", "reason", "actor",
            "manifest", "created_at",
        )  # fmt: skip
        read_only_fields = fields


class EntryShape(serializers.Serializer[Any]):
    name = serializers.CharField()
    path = serializers.CharField()
    is_folder = serializers.BooleanField()
    bytes = serializers.IntegerField()
    changed_at = serializers.DateTimeField()


class TrashShape(serializers.Serializer[Any]):
    id = serializers.IntegerField(source="pk")
    model = serializers.CharField()
    version = serializers.CharField(allow_blank=True)
