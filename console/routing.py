"""Which consumer answers which WebSocket path, behind origin check and session."""

from __future__ import annotations

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.urls import path

from console.monitoring.consumers import LiveConsumer

websocket_application = AllowedHostsOriginValidator(
    AuthMiddlewareStack(URLRouter([path("ws/live/", LiveConsumer.as_asgi())]))
)
