from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving import cli
from serving.cli_frontends import NO_EFFECT
from serving.cli_options import BY_NAME
from serving.options import CacheOptions, ControlMode, FrontendOptions

REPOSITORY = "--model-repository=/models"
OPTIONS = (Path(__file__).parents[1] / "data/tritonserver_options.txt").read_text().splitlines()
"""Every option of tritonserver's --help, and a value that it may have."""


def parse(*arguments: str) -> cli.CommandLine:
    line = cli.parse([REPOSITORY, *arguments])
    assert line is not None
    return line


def test_defaults_are_tritonservers_but_for_the_loopback_address():
    line = parse()

    assert line.server.model_repositories == (Path("/models"),)
    assert line.server.model_control_mode is ControlMode.NONE
    assert line.server.exit_on_error
    assert line.server.auto_complete_config
    assert line.frontends == FrontendOptions()
    assert (line.frontends.http_port, line.frontends.http_address) == (8000, "127.0.0.1")


def test_value_may_follow_an_equals_sign_or_a_space():
    line = parse("--http-port", "9000", "--grpc-port=9001", "--id", "conch")

    assert (line.frontends.http_port, line.frontends.grpc_port) == (9000, 9001)
    assert line.server.server_id == "conch"


def test_repository_and_load_model_are_repeatable_and_have_aliases():
    line = parse(
        "--model-store=/more",
        "--model-control-mode=explicit",
        "--load-model=a",
        "--load-model",
        "b",
    )

    assert line.server.model_repositories == (Path("/models"), Path("/more"))
    assert line.server.load_models == ("a", "b")


def test_drain_timeout():
    assert parse().server.model_drain_timeout_secs == 600
    assert parse("--model-drain-timeout-secs=5").server.model_drain_timeout_secs == 5
    with pytest.raises(cli.CommandLineError, match="whole number of at least 1"):
        parse("--model-drain-timeout-secs=0")


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("TRUE", True), ("false", False), ("0", False)]
)
def test_boolean_forms(text: str, value: bool):
    line = parse(f"--strict-readiness={text}", "--exit-on-error", text, f"--allow-grpc={text}")

    assert line.server.strict_readiness is value
    assert line.server.exit_on_error is value
    assert line.frontends.allow_grpc is value


def test_metrics_listen_where_http_does_unless_told_otherwise():
    assert parse("--http-address=0.0.0.0").frontends.metrics_address == "0.0.0.0"
    line = parse("--http-address=0.0.0.0", "--metrics-address=127.0.0.1")
    assert line.frontends.metrics_address == "127.0.0.1"


def test_poll_interval_counts_in_mode_poll_only():
    assert parse("--model-control-mode=poll").server.repository_poll_secs == 15
    line = parse("--repository-poll-secs=5")
    assert line.server.repository_poll_secs == 0
    assert "has no effect" in line.warnings[0]


def test_backend_settings_go_to_one_backend_or_to_all():
    line = parse(
        "--backend-config=onnxruntime,threads=2",
        "--backend-config=onnxruntime,mode=a=b",
        "--backend-config=default-max-batch-size=4",
    )

    assert line.server.backend_config == {
        "onnxruntime": {"threads": "2", "mode": "a=b"},
        "": {"default-max-batch-size": "4"},
    }


def test_auto_complete_can_be_turned_off_by_the_flag_or_its_deprecated_ancestor():
    assert not parse("--disable-auto-complete-config").server.auto_complete_config
    line = parse("--strict-model-config=true")
    assert not line.server.auto_complete_config
    assert "deprecated" in line.warnings[0]
    assert parse("--strict-model-config=0").server.auto_complete_config


def test_logging_options():
    line = parse("--log-verbose=2", "--log-info=false", "--log-format=ISO8601")

    assert (line.logging.verbose, line.logging.info, line.logging.format) == (2, False, "ISO8601")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--htp-port=1"], "unknown option --htp-port; did you mean --http-port?"),
        (["--zzzz"], "unknown option --zzzz"),
        (["models"], "unexpected argument 'models'"),
        (["-x"], "unexpected argument '-x'"),
        (["--"], "unexpected argument '--'"),
        (["--http-port"], "--http-port needs a value: --http-port=<port>"),
        (["--http-port", "--grpc-port=1"], "--http-port needs a value"),
        (["--http-port=abc"], "--http-port=abc: expects a whole number from 0 to 65535"),
        (["--http-port=65536"], "from 0 to 65535"),
        (["--http-port=-1"], "from 0 to 65535"),
        (["--http-restricted-api=health"], "expects <category>,<category>:<header>=<value>"),
        (["--http-restricted-api=health:key="], "expects <category>"),
        (["--http-restricted-api=helth:key=value"], "unknown category 'helth'; known are health"),
        (["--grpc-restricted-protocol=health:a b=value"], "no name of a header"),
        (
            ["--http-restricted-api=health:a=1", "--http-restricted-api=trace,health:b=2"],
            "category 'health' is given twice",
        ),
        (["--grpc-header-forward-pattern=("], "is not a regular expression"),
        (["--min-supported-compute-capability=new"], "expects a number from 0 to 1000"),
        (["--metrics-interval-ms=0"], "expects a number from 1 to"),
        (["--cuda-virtual-address-size=64"], "expects <gpu>:<bytes>"),
        (["--grpc-use-ssl=true"], "needs --grpc-server-cert and --grpc-server-key"),
        (
            ["--grpc-use-ssl-mutual=true", "--grpc-server-cert=c", "--grpc-server-key=k"],
            "needs --grpc-root-cert",
        ),
        (["--grpc-infer-response-compression-level=max"], "expects one of none, low"),
        (["--http-port="], "from 0 to 65535"),
        (["--http-port=1", "--http-port=2"], "given twice with different values"),
        (["--exit-timeout-secs=" + "9" * 30], "whole number of at least 0"),
        (["--strict-readiness=maybe"], "expects true, false, 1 or 0"),
        (["--disable-auto-complete-config=true"], "takes no value"),
        (["--model-control-mode=auto"], "expects none, explicit or poll"),
        (["--model-control-mode=poll", "--model-control-mode=explicit"], "given twice"),
        (["--model-control-mode=poll", "--repository-poll-secs=0"], "must not be 0 in mode poll"),
        (["--load-model=a"], "--load-model needs --model-control-mode=explicit"),
        (
            ["--model-control-mode=explicit", "--load-model=*", "--load-model=a"],
            "it must be the only --load-model",
        ),
        (["--http-header-forward-pattern=("], "is not a regular expression"),
        (["--backend-config=onnxruntime"], "expects <backend>,<key>=<value>"),
        (["--backend-config=,a=b"], "expects <backend>,<key>=<value>"),
        (["--log-format=xml"], "expects default or ISO8601"),
        (["--model-repository="], "must not be empty"),
        (["--http-port=9000", "--grpc-port=9000"], "--http-port and --grpc-port are both 9000"),
        (
            ["--http-address=0.0.0.0", "--metrics-address=127.0.0.1", "--metrics-port=8000"],
            "--http-port and --metrics-port are both 8000",
        ),
    ],
)
def test_mistake_gives_one_sentence_that_names_option_and_mend(arguments: list[str], words: str):
    with pytest.raises(cli.CommandLineError) as caught:
        cli.parse([REPOSITORY, *arguments])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_same_port_is_fine_when_free_closed_or_on_another_address():
    parse("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    parse("--http-port=9000", "--grpc-port=9000", "--allow-grpc=false")
    parse("--http-port=9000", "--grpc-port=9000", "--grpc-address=127.0.0.2")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.partition(" ")[0])
def test_every_option_of_tritonserver_is_accepted(option: str):
    """CLI-010..160: with a value of its kind, after a space; so is --help (CLI-001)."""
    name, _, value = option.partition(" ")
    needed = ["--model-control-mode=explicit"] if name == "load-model" else []
    arguments = [f"--{name}", value] if value else [f"--{name}"]

    line = parse(*needed, *arguments)

    is_told = any(f"--{name} has no effect: " in warning for warning in line.warnings)
    assert is_told == (name in NO_EFFECT)


def test_options_that_conch_does_in_another_way_say_how():
    """CLI-040, CLI-140, CLI-141, CLI-142, GRPC-041, GRPC-042: accepted, with a warning and why."""
    for name in NO_EFFECT:
        assert f"--{name}" in cli.help_text()
        assert BY_NAME[name].help == f"{NO_EFFECT[name]}."


def test_ports_may_be_shared_with_other_servers_where_options_say_so():
    """CLI-050, GRPC-040: off unless asked for."""
    assert not parse().frontends.http_reuse_port
    assert not parse().frontends.grpc.reuse_port
    line = parse("--reuse-http-port=true", "--reuse-grpc-port=true")
    assert line.frontends.http_reuse_port
    assert line.frontends.grpc.reuse_port


def test_grpc_options_have_tritonservers_defaults_and_take_other_values():
    """GRPC-043..046: TLS, compression, keep-alive, connection age."""
    grpc = parse().frontends.grpc
    assert (grpc.use_ssl, grpc.use_ssl_mutual, grpc.response_compression_level) == (False, False, 0)
    assert (grpc.keepalive_time_ms, grpc.keepalive_timeout_ms) == (7_200_000, 20_000)
    assert not grpc.keepalive_permit_without_calls
    assert (grpc.max_pings_without_data, grpc.min_recv_ping_interval_ms) == (2, 300_000)
    assert (grpc.max_ping_strikes, grpc.max_connection_age_s) == (2, 0)
    assert grpc.max_connection_age_grace_s is None

    grpc = parse(
        "--grpc-use-ssl-mutual=1",
        "--grpc-server-cert=c",
        "--grpc-server-key=k",
        "--grpc-root-cert=r",
        "--grpc-infer-response-compression-level=medium",
        "--grpc-keepalive-time=1000",
        "--grpc-max-connection-age=60",
        "--grpc-max-connection-age-grace=5",
        "--grpc-header-forward-pattern=x-.*",
    ).frontends.grpc
    assert grpc.use_ssl  # mutual wins
    assert grpc.root_cert == Path("r")
    assert (grpc.response_compression_level, grpc.keepalive_time_ms) == (2, 1000)
    assert (grpc.max_connection_age_s, grpc.max_connection_age_grace_s) == (60, 5)
    assert grpc.header_forward_pattern == "x-.*"


def test_repository_is_required():
    with pytest.raises(cli.CommandLineError, match="--model-repository is missing"):
        cli.parse([])


@pytest.mark.parametrize("argument", ["--help", "-h"])
def test_help_lists_every_option(argument: str):
    assert cli.parse([argument]) is None
    text = cli.help_text()
    for name in BY_NAME:
        assert f"--{name}" in text
    assert "127.0.0.1" in text


def test_memory_pools_are_accepted_without_effect():
    """SCH-153: the runtimes manage the memory of devices, and no request fails for a full pool."""
    line = parse(
        "--pinned-memory-pool-byte-size=268435456",
        "--cuda-memory-pool-byte-size=0:67108864",
        "--cuda-memory-pool-byte-size=1:67108864",
    )

    assert len([text for text in line.warnings if "memory-pool-byte-size has no" in text]) == 2
    with pytest.raises(cli.CommandLineError, match="expects <gpu>:<bytes>"):
        parse("--cuda-memory-pool-byte-size=64")


def test_one_response_cache_is_put_together_of_its_settings():
    """SCH-120, CLI-120."""
    line = parse(
        "--cache-config=redis,host=h", "--cache-config", "redis,port=1", "--cache-directory=d"
    )

    assert line.server.cache == CacheOptions("redis", {"host": "h", "port": "1"}, Path("d"))
    assert parse().server.cache is None
    with pytest.raises(cli.CommandLineError, match="only a single response cache is supported"):
        parse("--cache-config=redis,host=h", "--cache-config=local,size=1")
    with pytest.raises(cli.CommandLineError, match="--cache-config=local: expects <cache>,<key>"):
        parse("--cache-config=local")


def test_the_old_size_of_the_cache_is_a_local_cache():
    """CLI-160."""
    line = parse("--response-cache-byte-size=2000")

    assert line.server.cache == CacheOptions("local", {"size": "2000"})
    assert "use --cache-config=local,size=2000 instead" in line.warnings[0]
    assert parse("--response-cache-byte-size=0").server.cache is None
    with pytest.raises(cli.CommandLineError, match="exclude each other"):
        parse("--response-cache-byte-size=2000", "--cache-config=local,size=1")


def test_resources_of_the_rate_limiter():
    """SCH-110, SCH-112, CLI-130."""
    line = parse(
        "--rate-limit=Execution_Count", "--rate-limit-resource=R1:4", "--rate-limit-resource=r2:1:0"
    )

    assert line.server.rate_limit
    assert line.server.rate_limit_resources == {("r1", None): 4, ("r2", 0): 1}
    assert line.warnings == ()
    assert not parse("--rate-limit=off").server.rate_limit
    assert "no effect without --rate-limit" in parse("--rate-limit-resource=a:1").warnings[0]
    with pytest.raises(cli.CommandLineError, match="--rate-limit=on: expects off or"):
        parse("--rate-limit=on")
    with pytest.raises(cli.CommandLineError, match="given as 4 and as 3"):
        parse("--rate-limit-resource=R1:4", "--rate-limit-resource=r1:3")


def test_metrics_config_chooses_the_latency_families():
    """MET-010..012."""
    config = parse(
        "--metrics-config=counter_latencies=false",
        "--metrics-config=summary_latencies=true",
        "--metrics-config=summary_quantiles=0.9:0.01,0.5:0.05",
    ).server.metrics_config

    assert not config.counter_latencies
    assert not config.histogram_latencies
    assert config.summary_latencies
    assert config.summary_quantiles == (0.5, 0.9)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("summary_latencies", "expects <key>=<value>"),
        ("latencies=true", "unknown key 'latencies'"),
        ("summary_latencies=maybe", "expects true, false, 1 or 0"),
        ("summary_quantiles=50:0.1", "'50:0.1' is not of the form <quantile>:<error>"),
        ("summary_quantiles=0.5", "'0.5' is not of the form <quantile>:<error>"),
    ],
)
def test_a_metrics_config_that_is_none_is_refused(text, told):
    with pytest.raises(cli.CommandLineError, match=re.escape(told)):
        parse(f"--metrics-config={text}")
