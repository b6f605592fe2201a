"""The command line's vocabulary: every tritonserver option that we have, with its form.

Data and converters only; `serving.cli` parses with it. Source: spec CLI-001..172.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from serving.cli_forms import Option, OptionError, boolean, decimal, integer, not_empty, path
from serving.cli_frontends import FRONTEND_OPTIONS, no_effect_options
from serving.cli_hosting import HOSTING_OPTIONS
from serving.cli_sharing import OLD_CACHE_OPTIONS, SHARING_OPTIONS
from serving.cli_trace import OLD_TRACE_OPTIONS, TRACE_OPTIONS
from serving.errors import InvalidArgumentError
from serving.host_policies import parse_setting
from serving.options import ControlMode
from serving.repository.cloud import url as cloud_url


def control_mode(text: str) -> ControlMode:
    try:
        return ControlMode(text)
    except ValueError:
        raise OptionError("expects none, explicit or poll") from None


def log_format(text: str) -> str:
    if text not in ("default", "ISO8601"):
        raise OptionError("expects default or ISO8601")
    return text


def config_name(text: str) -> str:
    """The name of a file in configs/, without its suffix. REP-009."""
    if not text or any(character.isspace() for character in text):
        raise OptionError("must be a name without spaces")
    if "/" in text or "\0" in text:
        raise OptionError("names a file in the folder configs of a model: no '/'")
    return text


def gpu_limit(text: str) -> tuple[int, float]:
    match = re.fullmatch(r"([0-9]{1,4}):([01]|[01]?\.[0-9]{1,9})", text)
    if match is None or float(match[2]) > 1:
        raise OptionError("expects <device>:<fraction>, a fraction from 0 to 1, as in 0:0.8")
    return int(match[1]), float(match[2])


def repository(text: str) -> Path | str:
    """A directory as a Path, a URL as the text it is."""
    if not cloud_url.is_url(text):
        return path(text)
    try:
        return str(cloud_url.parse(text))
    except InvalidArgumentError as error:
        raise OptionError(error.message) from None


def host_policy(text: str) -> tuple[str, str, int | frozenset[int]]:
    try:
        return parse_setting(text)
    except ValueError as error:
        raise OptionError(str(error)) from None


def backend_setting(text: str) -> tuple[str, str, str]:
    """`<backend>,<key>=<value>`, or `<key>=<value>` for all -> (backend, key, value)."""
    head, equals, value = text.partition("=")
    backend, comma, key = head.partition(",")
    if not comma:
        backend, key = "", head
    if not equals or not key.strip() or (comma and not backend.strip()):
        raise OptionError("expects <backend>,<key>=<value>, or <key>=<value> for all backends")
    return backend.strip(), key.strip(), value


SUPPORTED: Sequence[Option] = (
    Option("help", "Server", "", "Print this text and exit."),
    Option("id", "Server", "<name>", "Name in the server's metadata. Default: triton.", not_empty),
    Option(
        "exit-timeout-secs",
        "Server",
        "<seconds>",
        "How long running requests may take to finish at exit. Default: 30.",
        integer(0),
    ),
    Option(
        "log-verbose",
        "Logging",
        "<level>",
        "0 is off; 1 and more log what the server does in detail. Default: 0.",
        integer(0),
    ),
    Option("log-info", "Logging", "<boolean>", "Log notices. Default: true.", boolean),
    Option("log-warning", "Logging", "<boolean>", "Log warnings. Default: true.", boolean),
    Option("log-error", "Logging", "<boolean>", "Log errors. Default: true.", boolean),
    Option(
        "log-format", "Logging", "<format>", "default or ISO8601. Default: default.", log_format
    ),
    Option("log-file", "Logging", "<file>", "Where records go. Default: standard error.", path),
    Option(
        "model-log-directory",
        "Logging",
        "<directory>",
        "What models print and log also goes into a file for each there, which rotates.",
        path,
    ),
    Option(
        "model-repository",
        "Model repository",
        "<directory or URL>",
        "Where models are: a directory, s3://, gs:// or as://; once for each. Required.",
        repository,
        is_repeatable=True,
        alias="model-store",
    ),
    Option(
        "exit-on-error",
        "Model repository",
        "<boolean>",
        "Exit with status 1 when a model fails to load at start. Default: true.",
        boolean,
    ),
    Option(
        "disable-auto-complete-config",
        "Model repository",
        "",
        "Take config.pbtxt as it is, fill in nothing from the model.",
    ),
    Option(
        "strict-readiness",
        "Model repository",
        "<boolean>",
        "Ready only while every model is. Default: true.",
        boolean,
    ),
    Option(
        "model-control-mode",
        "Model repository",
        "<mode>",
        "none (load all at start), explicit (by --load-model and API), or poll. Default: none.",
        control_mode,
    ),
    Option(
        "repository-poll-secs",
        "Model repository",
        "<seconds>",
        "How often mode poll looks for changes. Default: 15.",
        integer(0, 86_400 * 365),
    ),
    Option(
        "load-model",
        "Model repository",
        "<name>",
        "Mode explicit: load this model at start; repeatable. '*' alone loads all.",
        not_empty,
        is_repeatable=True,
    ),
    Option(
        "model-load-thread-count",
        "Model repository",
        "<count>",
        "How many models load at once. Default: 4.",
        integer(1, 1024),
    ),
    Option(
        "model-load-retry-count",
        "Model repository",
        "<count>",
        "How often a failed load is tried again, if the model files are sound. Default: 0.",
        integer(0, 1000),
    ),
    Option(
        "model-config-name",
        "Model repository",
        "<name>",
        "Take configs/<name>.pbtxt as the config of every model that has that file.",
        config_name,
    ),
    Option(
        "model-load-gpu-limit",
        "Model repository",
        "<device>:<fraction>",
        "Refuse loads to a GPU while more than this part of its memory is in use. Repeatable.",
        gpu_limit,
        is_repeatable=True,
    ),
    Option(
        "model-namespacing",
        "Model repository",
        "<boolean>",
        "Serve models of one name from several repositories. Default: false.",
        boolean,
    ),
    Option(
        "model-load-timeout-secs",
        "Model repository",
        "<seconds>",
        "Conch's own: a load that takes longer has failed. Default: 600.",
        integer(1),
    ),
    Option(
        "model-warmup-timeout-secs",
        "Model repository",
        "<seconds>",
        "Conch's own: how long the warm-up of a model may take, on all instances. Default: 300.",
        integer(1),
    ),
    Option(
        "model-drain-timeout-secs",
        "Model repository",
        "<seconds>",
        "Conch's own: how long requests may go on in a model that was unloaded or replaced. "
        "Default: 600.",
        integer(1),
    ),
    Option(
        "repoagent-directory",
        "Model repository",
        "<directory>",
        "Where more repository agents are, as <agent>/agent.py.",
        path,
    ),
    Option(
        "cloud-credential",
        "Cloud repositories",
        "<file>",
        "tritonserver's credential file. Default: what TRITON_CLOUD_CREDENTIAL_PATH names.",
        path,
    ),
    Option(
        "cloud-cache-directory",
        "Cloud repositories",
        "<directory>",
        "Where downloaded model files are kept. Default: conch/models in the user's cache.",
        path,
    ),
    Option(
        "cloud-cache-byte-size",
        "Cloud repositories",
        "<bytes>",
        "Limit of that cache; 0 keeps files only while a model uses them. Default: 50 GB.",
        integer(0),
    ),
    Option(
        "cloud-timeout-secs",
        "Cloud repositories",
        "<seconds>",
        "How long one answer of the store may take. Default: 30.",
        integer(1, 3600),
    ),
    *FRONTEND_OPTIONS,
    *HOSTING_OPTIONS,
    *TRACE_OPTIONS,
    Option("backend-directory", "Backends", "<directory>", "Where more backends are.", path),
    Option(
        "min-supported-compute-capability",
        "Backends",
        "<number>",
        "GPUs of a lower CUDA compute capability are refused. Default: 6.0.",
        decimal(0, 1000),
    ),
    Option(
        "backend-config",
        "Backends",
        "<backend>,<key>=<value>",
        "Setting of a backend; <key>=<value> goes to all of them. Repeatable.",
        backend_setting,
        is_repeatable=True,
    ),
    Option(
        "host-policy",
        "Backends",
        "<name>,<setting>=<value>",
        "Where instances run: cpu-cores=<list as 0-3,8> or numa-node=<number>. Groups name it in "
        "host_policy; else it is cpu, model or gpu_<id>. Repeatable.",
        host_policy,
        is_repeatable=True,
    ),
    *SHARING_OPTIONS,
    Option(
        "strict-model-config",
        "Deprecated",
        "<boolean>",
        "true is --disable-auto-complete-config.",
        boolean,
    ),
    *OLD_TRACE_OPTIONS,
    *OLD_CACHE_OPTIONS,
    *no_effect_options(),
)

BY_NAME: dict[str, Option] = {option.name: option for option in SUPPORTED} | {
    option.alias: option for option in SUPPORTED if option.alias
}
