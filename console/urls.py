"""The map of the console: each app brings `urls.py` (pages) and `api_urls.py` (REST).

Pages are mounted under the prefixes below; REST routes of every app under `/api/v1/`. Paths under
`/v2` never come here: `console.asgi` hands them to the gateway before Django.
"""

from __future__ import annotations

from importlib.util import find_spec

from django.urls import URLPattern, URLResolver, include, path

PAGES = {
    "core": "",
    "accounts": "",
    "catalog": "models/",
    "deployments": "deployments/",
    "engines": "engines/",
    "repository": "repository/",
    "fleet": "workers/",
    "monitoring": "live/",
}

urlpatterns: list[URLPattern | URLResolver] = [
    path(prefix, include(f"console.{app}.urls"))
    for app, prefix in PAGES.items()
    if find_spec(f"console.{app}.urls")
]
urlpatterns += [path("backends/", include("console.fleet.backend_urls"))]
urlpatterns += [
    path("api/v1/", include(f"console.{app}.api_urls"))
    for app in PAGES
    if find_spec(f"console.{app}.api_urls")
]

handler400 = "console.core.views.bad_request"
handler403 = "console.core.views.permission_denied"
handler404 = "console.core.views.not_found"
handler500 = "console.core.views.server_error"
