"""Settings of the console, from the environment only; docs/reference/settings.md lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF

from console.environment import (
    env_bool,
    env_int,
    env_list,
    env_path,
    env_secret,
    env_text,
    kept_secret,
)

BASE_DIR = Path(__file__).resolve().parent.parent
CONCH_DATA_DIR = env_path("CONCH_DATA_DIR", BASE_DIR / "var")
CONCH_MODEL_REPOSITORY = env_path("CONCH_MODEL_REPOSITORY", CONCH_DATA_DIR / "model_repository")

DEBUG = env_bool("CONCH_DEBUG")
SECRET_KEY = env_secret("CONCH_SECRET_KEY") or kept_secret(CONCH_DATA_DIR / "secret_key")
ALLOWED_HOSTS = env_list("CONCH_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env_list("CONCH_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "csp",
    "django_htmx",
    "django_ace",
    "console.core",
    "console.accounts",
    "console.repository",
    "console.catalog",
    "console.deployments",
    "console.engines",
    "console.fleet",
    "console.monitoring",
    "console.gateway",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "console.core.static_files.StaticFilesMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    # Every page asks for a login unless its view says otherwise.
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.context.console",
            ],
            "builtins": ["console.core.templatetags.console"],
        },
    }
]

# --- database -----------------------------------------------------------------------------------

DATABASES: dict[str, Any] = {
    "default": dj_database_url.parse(
        env_secret("DATABASE_URL") or f"sqlite:///{CONCH_DATA_DIR / 'console.sqlite3'}",
        conn_max_age=0,
        conn_health_checks=True,
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    CONCH_DATA_DIR.mkdir(parents=True, exist_ok=True)
    # IMMEDIATE: a transaction that will write takes the lock at its start, so that two writers wait
    # for each other (busy timeout) instead of one failing half way.
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        transaction_mode="IMMEDIATE",
        timeout=env_int("CONCH_SQLITE_TIMEOUT_SECONDS", 20),
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    )
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Redis, Channels, Celery --------------------------------------------------------------------

REDIS_URL = env_secret("REDIS_URL") or "redis://127.0.0.1:6379/0"
# The relay of each web process feeds its own sockets only, so the layer stays inside the process.
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels.layers.InMemoryChannelLayer",
        "CONFIG": {"capacity": env_int("CONCH_LIVE_BACKLOG", 120, minimum=1)},
    }
}
CONCH_LIVE_SOCKETS = env_int("CONCH_LIVE_SOCKETS", 200, minimum=1)
# The relay of telemetry into sockets; tests that have no Redis switch it off.
CONCH_LIVE_RELAY = env_bool("CONCH_LIVE_RELAY", True)

# --- people -------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "accounts:login"
LOGIN_REDIRECT_URL = "core:overview"
LOGOUT_REDIRECT_URL = "accounts:login"
_VALIDATORS = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_VALIDATORS}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATORS}.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": f"{_VALIDATORS}.CommonPasswordValidator"},
    {"NAME": f"{_VALIDATORS}.NumericPasswordValidator"},
]

# --- security -----------------------------------------------------------------------------------

# On when the console is reached through TLS; the quick start on one machine is plain HTTP.
_SECURE = env_bool("CONCH_SECURE_COOKIES")
SESSION_COOKIE_SECURE = _SECURE
CSRF_COOKIE_SECURE = _SECURE
SESSION_COOKIE_NAME = "conch_session"
CSRF_COOKIE_NAME = "conch_csrf"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = env_int("CONCH_SESSION_SECONDS", 14 * 24 * 3600, minimum=60)
CSRF_FAILURE_VIEW = "console.core.views.csrf_failure"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = env_int("CONCH_HSTS_SECONDS", 0)
X_FRAME_OPTIONS = "DENY"
if env_bool("CONCH_BEHIND_TLS_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "worker-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "manifest-src": [SELF],
    }
}

# --- REST API -----------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "console.accounts.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["console.core.permissions.RoleViewer"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.core.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "console.core.exceptions.api_exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
KNOX_TOKEN_MODEL = "accounts.ApiToken"  # noqa: S105 - the name of a model
# knox's migrations would make a table for the token model that ours replaces; nothing would ever
# empty it, and PostgreSQL would refuse to truncate the users it refers to.
MIGRATION_MODULES = {"knox": None}
REST_KNOX = {"TOKEN_TTL": None, "TOKEN_PREFIX": "conch_", "AUTH_HEADER_PREFIX": "Bearer"}
SPECTACULAR_SETTINGS = {
    "TITLE": "Conch",
    "DESCRIPTION": "Models, versions, deployments and metrics of a Conch installation.",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "console.deployments.openapi.add_errors",
    ],
    "ENUM_NAME_OVERRIDES": {
        "UploadState": "console.repository.choices.UploadState",
        "DeploymentState": "console.deployments.choices.DeploymentState",
        "TargetState": "console.deployments.choices.TargetState",
        "WantedState": "console.deployments.choices.WantedState",
        "DeploymentAction": "console.deployments.choices.Action",
    },
}

# --- static files -------------------------------------------------------------------------------

STATIC_URL = "static/"
STATIC_ROOT = CONCH_DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "console.core.finders.PackageFilesFinder",
]
_STATIC_STORAGE = (
    "django.contrib.staticfiles.storage.StaticFilesStorage"
    if DEBUG
    else "console.core.storage.ModuleManifestStorage"
)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": _STATIC_STORAGE},
}
WHITENOISE_USE_FINDERS = DEBUG
WHITENOISE_ALLOW_ALL_ORIGINS = False

# --- gateway ------------------------------------------------------------------------------------

# How long a worker may take until the first byte of its answer.
CONCH_GATEWAY_TIMEOUT_SECONDS = env_int("CONCH_GATEWAY_TIMEOUT_SECONDS", 300, minimum=1)

# --- uploads and deployments --------------------------------------------------------------------

CONCH_UPLOAD_MAX_BYTES = env_int("CONCH_UPLOAD_MAX_BYTES", 64 << 30, minimum=1)
CONCH_UPLOAD_MAX_FILES = env_int("CONCH_UPLOAD_MAX_FILES", 20_000, minimum=1)
CONCH_UPLOAD_KEEP_DAYS = env_int("CONCH_UPLOAD_KEEP_DAYS", 7, minimum=1)
# What uploads leave free on the disk of the repository.
CONCH_KEEP_FREE_BYTES = env_int("CONCH_KEEP_FREE_BYTES", 256 << 20)
CONCH_TRASH_DAYS = env_int("CONCH_TRASH_DAYS", 30, minimum=1)
# A load without an answer after this long has failed; longer than the core's own deadline.
CONCH_OPERATION_SECONDS = env_int("CONCH_OPERATION_SECONDS", 660, minimum=1)
# How long one task follows running operations; beat starts the next one.
CONCH_FOLLOW_SECONDS = env_int("CONCH_FOLLOW_SECONDS", 20)
# How long the audit log goes back, and what the reconciler did by itself; 0 keeps it for good.
CONCH_AUDIT_DAYS = env_int("CONCH_AUDIT_DAYS", 730)
CONCH_REPAIR_DAYS = env_int("CONCH_REPAIR_DAYS", 30)
CONCH_LOAD_ALL_ON_FIRST_START = env_bool("CONCH_LOAD_ALL_ON_FIRST_START", True)
# A folder arrives as one form with a field for each file, and its relative path beside it.
DATA_UPLOAD_MAX_NUMBER_FILES = CONCH_UPLOAD_MAX_FILES
DATA_UPLOAD_MAX_NUMBER_FIELDS = CONCH_UPLOAD_MAX_FILES + 100

# --- the rest -----------------------------------------------------------------------------------

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
USE_THOUSAND_SEPARATOR = False
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
APPEND_SLASH = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"},
        "json": {"()": "console.core.logs.JsonFormatter"},
    },
    "filters": {"refusals_in_one_line": {"()": "console.core.logs.RefusalsInOneLine"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "json" if env_bool("CONCH_LOG_JSON") else "plain",
        }
    },
    "root": {"handlers": ["stderr"], "level": env_text("CONCH_LOG_LEVEL", "INFO").upper()},
    "loggers": {
        name: {"level": "WARNING"}
        # Celery's tell of every task; the reconciler runs one every two seconds.
        for name in (
            "httpx",
            "httpcore",
            "celery.beat",
            "celery.app.trace",
            "celery.worker.strategy",
        )
    }
    | {"django.request": {"filters": ["refusals_in_one_line"]}},
}
