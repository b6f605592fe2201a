from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from serving.host_policies import HostPolicy
from serving.options import CacheOptions, ControlMode, TraceSettings
from workers.settings import SettingsError, broker_url, load_settings, redis_url

MODELS = {"CONCH_MODEL_REPOSITORY": "/models"}


def test_defaults_start_an_explicit_server_on_loopback_with_no_model():
    settings = load_settings(MODELS)

    assert settings.redis_url == "redis://127.0.0.1:6379/0"
    assert settings.queue == f"worker.{settings.worker_id}"
    assert settings.server.model_control_mode is ControlMode.EXPLICIT
    assert settings.server.load_models == ()
    assert not settings.server.exit_on_error
    front = settings.frontends
    assert (front.http_port, front.grpc_port, front.metrics_port) == (8000, 8001, 8002)
    assert front.http_address == "127.0.0.1"


def test_everything_can_be_set():
    settings = load_settings(
        {
            "CONCH_MODEL_REPOSITORY": os.pathsep.join(["/a", "/b"]),
            "CONCH_WORKER_ID": "gpu-1",
            "CONCH_LOAD_MODELS": "x, y",
            "CONCH_HTTP_ADDRESS": "0.0.0.0",
            "CONCH_HTTP_PORT": "1",
            "CONCH_GRPC_ADDRESS": "::1",
            "CONCH_EXIT_TIMEOUT": "7",
            "CONCH_LOAD_TIMEOUT": "60",
            "CONCH_DRAIN_TIMEOUT": "90",
            "CONCH_LOAD_RETRIES": "2",
            "CONCH_STRICT_READINESS": "true",
            "CONCH_REPOAGENT_DIRECTORY": "/agents",
        }
    )

    assert settings.queue == "worker.gpu-1"
    assert settings.server.model_repositories == (Path("/a"), Path("/b"))
    assert settings.server.load_models == ("x", "y")
    assert settings.server.strict_readiness
    assert settings.server.repoagent_directory == Path("/agents")
    assert (settings.server.exit_timeout_secs, settings.server.model_load_timeout_secs) == (7, 60)
    assert settings.server.model_load_retry_count == 2
    assert settings.server.model_drain_timeout_secs == 90
    assert settings.frontends.grpc_address == "::1"
    assert settings.frontends.metrics_address == "0.0.0.0"


def test_wildcard_address_is_advertised_as_a_name_that_others_can_use():
    settings = load_settings(MODELS)
    assert settings.reachable("127.0.0.1") == "127.0.0.1"
    assert settings.reachable("0.0.0.0") == socket.gethostname()
    named = load_settings({**MODELS, "CONCH_ADVERTISED_HOST": "gpu-1.lan"})
    assert named.reachable("0.0.0.0") == "gpu-1.lan"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"CONCH_MODEL_REPOSITORY": ""}, "CONCH_MODEL_REPOSITORY is not set"),
        ({"CONCH_WORKER_ID": "a b"}, "CONCH_WORKER_ID is 'a b'"),
        ({"CONCH_WORKER_ID": "../x"}, "CONCH_WORKER_ID"),
        ({"CONCH_HTTP_PORT": "http"}, "CONCH_HTTP_PORT is 'http'"),
        ({"CONCH_HTTP_PORT": "70000"}, "from 0 to 65535"),
        ({"CONCH_LOAD_MODELS": "*,a"}, "must stand alone"),
        ({"CONCH_STRICT_READINESS": "maybe"}, "write true or false"),
        ({"CONCH_LOAD_TIMEOUT": "0"}, "from 1 to"),
        ({"REDIS_URL": "http://x"}, "REDIS_URL must start with redis://"),
        ({"REDIS_URL_FILE": "/nowhere/at/all"}, "REDIS_URL_FILE cannot be read"),
    ],
)
def test_value_that_cannot_be_used_is_named(changes: dict[str, str], words: str):
    with pytest.raises(SettingsError, match=words.replace("*", r"\*")):
        load_settings({**MODELS, **changes})


def test_redis_url_may_come_from_a_secret_file(tmp_path: Path):
    secret = tmp_path / "url"
    secret.write_text("redis://:password@db:6379/1\n")
    assert redis_url({"REDIS_URL_FILE": str(secret)}) == "redis://:password@db:6379/1"


@pytest.mark.parametrize(
    ("url", "celery"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("unix:///run/r.sock", "redis+socket:///run/r.sock"),
        ("unix:///run/r.sock?db=3", "redis+socket:///run/r.sock?virtual_host=3"),
    ],
)
def test_unix_socket_has_another_name_in_celery(url: str, celery: str):
    assert broker_url(url) == celery


def test_host_policies_are_those_of_the_command_line_one_after_the_other():
    text = "cpu,cpu-cores=0-1; gpu_0,numa-node=1"

    policies = load_settings({**MODELS, "CONCH_HOST_POLICIES": text}).server.host_policies

    assert policies == {"cpu": HostPolicy(None, frozenset({0, 1})), "gpu_0": HostPolicy(1)}


def test_settings_of_backends_are_those_of_the_command_line_one_after_the_other(tmp_path: Path):
    text = "python,execute-timeout-seconds=5; python,max-quick-restarts=3;min=7"

    server = load_settings(
        {**MODELS, "CONCH_BACKEND_CONFIG": text, "CONCH_MODEL_LOG_DIRECTORY": str(tmp_path)}
    ).server

    expected = {"execute-timeout-seconds": "5", "max-quick-restarts": "3"}
    everyone = {"min": "7", "allow-native-code": "false"}
    assert server.backend_config == {"python": expected, "": everyone}
    assert server.model_log_directory == tmp_path


@pytest.mark.parametrize(
    ("environment", "allowed"),
    [
        ({}, "false"),
        ({"CONCH_ALLOW_NATIVE_CODE": "true"}, "true"),
        ({"CONCH_BACKEND_CONFIG": "allow-native-code=true"}, "true"),
    ],
)
def test_models_of_the_console_bring_no_native_code_unless_allowed(environment, allowed):
    """PT-22: publishing a model does not run code in the worker's process."""
    config = load_settings({**MODELS, **environment}).server.backend_config

    assert config[""]["allow-native-code"] == allowed


def test_a_wrong_setting_of_a_backend_says_what_is_expected():
    with pytest.raises(SettingsError, match="'python,x' is not of the form <backend>,<key>"):
        load_settings({**MODELS, "CONCH_BACKEND_CONFIG": "python,x"})


def test_a_wrong_host_policy_says_what_is_expected():
    with pytest.raises(SettingsError, match="CONCH_HOST_POLICIES: expects <name>,cpu-cores="):
        load_settings({**MODELS, "CONCH_HOST_POLICIES": "cpu"})


def test_the_cache_is_that_of_the_command_line_one_setting_after_the_other(tmp_path: Path):
    text = "redis,host=cache.example; redis,port=6380"

    server = load_settings({**MODELS, "CONCH_CACHE_CONFIG": text}).server

    assert server.cache == CacheOptions("redis", {"host": "cache.example", "port": "6380"})
    assert load_settings(MODELS).server.cache is None
    secret = tmp_path / "cache"
    secret.write_text("local,size=1000\n")
    found = load_settings({**MODELS, "CONCH_CACHE_CONFIG_FILE": str(secret)}).server.cache
    assert found == CacheOptions("local", {"size": "1000"})


def test_the_rate_limiter_is_that_of_the_command_line():
    server = load_settings(
        {
            **MODELS,
            "CONCH_RATE_LIMIT": "execution_count",
            "CONCH_RATE_LIMIT_RESOURCES": "R1:4; r2:1:0",
        }
    ).server

    assert server.rate_limit
    assert server.rate_limit_resources == {("r1", None): 4, ("r2", 0): 1}
    assert not load_settings(MODELS).server.rate_limit


def test_latencies_of_the_metrics_are_those_of_the_command_line():
    config = load_settings(
        {**MODELS, "CONCH_METRICS_CONFIG": "summary_latencies=true; summary_quantiles=0.5:0.1"}
    ).server.metrics_config

    assert config.summary_latencies
    assert config.summary_quantiles == (0.5,)


def test_traces_are_those_of_the_command_line():
    text = "mode=opentelemetry; opentelemetry,resource=service.name=vision; level=TIMESTAMPS;rate=9"

    trace = load_settings({**MODELS, "CONCH_TRACE_CONFIG": text}).frontends.trace

    assert trace.telemetry.resource == (("service.name", "vision"),)
    assert (trace.levels, trace.rate) == (("TIMESTAMPS",), 9)
    assert load_settings(MODELS).frontends.trace == TraceSettings()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("CONCH_CACHE_CONFIG", "local", "expects <cache>,<key>=<value>"),
        ("CONCH_CACHE_CONFIG", "local,size=1;redis,host=h", "only a single response cache"),
        ("CONCH_RATE_LIMIT", "on", "expects off or execution_count"),
        ("CONCH_RATE_LIMIT_RESOURCES", "R1", "expects <name>:<count>"),
        ("CONCH_METRICS_CONFIG", "latencies=true", "unknown key 'latencies'"),
        ("CONCH_TRACE_CONFIG", "rate=often", "Unable to parse 'trace_rate'"),
    ],
)
def test_what_models_share_is_named_when_it_cannot_be_used(name: str, text: str, words: str):
    with pytest.raises(SettingsError, match=f"{name}: .*{words}"):
        load_settings({**MODELS, name: text})
