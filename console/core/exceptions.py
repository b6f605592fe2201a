"""Errors of the REST API: every one is `{"error": {"code", "message", "fields"}}`.

A `ServingError` of the paper half and a `WorkerError` are translated here, so that no API view
catches them itself.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from serving.errors import ServingError
from workers.client import WorkerError

LOG_IN_HINT = "An API token is needed: send `Authorization: Bearer <API token>`."


def api_exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's hook; None lets an unexpected error become a 500 with its traceback in the log."""
    if isinstance(error, ServingError):
        return _serving_error(error)
    if isinstance(error, WorkerError):
        return Response(error_body("worker_unavailable", str(error)), status=503)
    response = exception_handler(error, context)
    if response is None:
        return None
    response.data = _body_of(error, response.data)
    return response


def error_body(
    code: str, message: str, fields: dict[str, list[str]] | None = None
) -> dict[str, dict[str, Any]]:
    return {"error": {"code": code, "message": message, "fields": fields or {}}}


def _serving_error(error: ServingError) -> Response:
    """Some errors of the console know more: fields, findings, a status of their own (409)."""
    code = getattr(error, "api_code", error.code.name.lower())
    body = error_body(code, str(error), getattr(error, "fields", None))
    body["error"].update(getattr(error, "api_detail", {}))
    return Response(body, status=getattr(error, "api_status", None) or _http_status(error))


def _http_status(error: ServingError) -> int:
    from serving.protocol.status import http_status

    return int(http_status(error.code))


def _body_of(error: Exception, data: Any) -> dict[str, dict[str, Any]]:
    if isinstance(error, Http404):
        return error_body("not_found", str(error) or "There is nothing under this address.")
    if isinstance(error, PermissionDenied):
        return error_body("permission_denied", str(error) or "You may not do this.")
    if isinstance(error, exceptions.ValidationError):
        fields = _fields(data)
        return error_body("invalid", _summary(fields), fields)
    if isinstance(error, exceptions.NotAuthenticated):
        return error_body("not_authenticated", LOG_IN_HINT)
    if isinstance(error, exceptions.APIException):
        code = error.get_codes()
        return error_body(code if isinstance(code, str) else "error", str(error.detail))
    return error_body("error", str(error))


def _fields(data: Any) -> dict[str, list[str]]:
    if isinstance(data, list):
        return {"": [str(text) for text in data]}
    return {name: _texts(value) for name, value in data.items()}


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(text) for text in value]
    if isinstance(value, dict):
        return [f"{name}: {text}" for name, texts in value.items() for text in _texts(texts)]
    return [str(value)]


def _summary(fields: dict[str, list[str]]) -> str:
    parts = []
    for name, texts in fields.items():
        plain = name in ("", "non_field_errors", "detail")
        parts.append(" ".join(texts) if plain else f"{name}: {' '.join(texts)}")
    return "; ".join(parts)
