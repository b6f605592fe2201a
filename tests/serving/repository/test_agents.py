"""Repository agents (REP-110..113)."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.config.protobuf import pb
from serving.errors import InternalError, InvalidArgumentError, ModelLoadError
from serving.options import ControlMode
from serving.repository import agents
from serving.repository.agents import Action, AgentModel, ChecksumAgent
from serving.repository.checksum import verify
from tests.serving.model_files import identity_request, write_identity
from tests.serving.repository.fakes import rows
from tests.waiting import wait_until

RECORDER = """
from serving.repository.agents import Action, RepositoryAgent

calls = []
refuse = ""
redirect = None

class Recorder(RepositoryAgent):
    def model_action(self, action, model):
        calls.append((model.parameters.get("id", ""), action.value))
        if action is Action.LOAD:
            if refuse:
                raise ValueError(refuse)
            if redirect:
                model.redirect(redirect)
            model.state = object()
        assert model.state is not None
        if model.parameters.get("fails_at") == action.value:
            raise RuntimeError("nobody needs to know")

class Stranger:
    pass
"""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An installed distribution that announces agents as any package would."""
    site = tmp_path / "site"
    info = site / "conch_test_agents-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: conch-test-agents\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[conch.repository_agents]\n"
        "recorder = conch_test_agents:Recorder\n"
        "stranger = conch_test_agents:Stranger\n"
        "missing = conch_test_agents:Missing\n"
    )
    (site / "conch_test_agents.py").write_text(RECORDER)
    monkeypatch.syspath_prepend(str(site))
    import conch_test_agents  # type: ignore[import-not-found]

    yield conch_test_agents
    del sys.modules["conch_test_agents"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "models"
    directory.mkdir()
    return directory


def agents_of(*configs: str) -> str:
    """Several agents in one message."""
    inner = "".join(config.split("{", 1)[1].rsplit("}", 1)[0] for config in configs)
    return f"model_repository_agents {{ {inner} }}\n"


def agent(name: str, **parameters: str) -> str:
    pairs = "".join(
        f'parameters {{ key: "{key}" value: "{value}" }} ' for key, value in parameters.items()
    )
    return f'model_repository_agents {{ agents {{ name: "{name}" {pairs} }} }}\n'


async def test_rep_111_actions_come_in_order_over_the_life_of_a_model(serve, root, recorder):
    write_identity(root, "m", extra=agent("recorder"))
    server = await serve(root)

    await server.load_model("m")
    await server.settled()
    assert [call[1] for call in recorder.calls] == ["LOAD", "LOAD_COMPLETE"]

    await server.unload_model("m")
    await server.settled()
    assert [call[1] for call in recorder.calls[2:]] == ["UNLOAD", "UNLOAD_COMPLETE"]


async def test_rep_111_reload_loads_the_new_before_it_unloads_the_old(serve, root, recorder):
    write_identity(root, "m", extra=agent("recorder", id="old"))
    server = await serve(root)
    await server.load_model("m")
    await server.settled()

    write_identity(root, "m", extra=agent("recorder", id="new"))
    await server.load_model("m")
    await server.settled()

    told = [call for call in recorder.calls if call[0] == "old"]
    assert [action for _, action in told] == ["LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"]
    assert recorder.calls.index(("new", "LOAD")) < recorder.calls.index(("old", "UNLOAD"))


async def test_rep_111_agents_are_told_when_the_server_stops(serve, root, recorder):
    write_identity(root, "m", extra=agent("recorder"))
    server = await serve(root, model_control_mode=ControlMode.NONE)

    await server.stop()

    assert [call[1] for call in recorder.calls][2:] == ["UNLOAD", "UNLOAD_COMPLETE"]


async def test_rep_111_failed_load_is_told(serve, root, recorder):
    write_identity(
        root,
        "m",
        extra=agent("recorder") + 'parameters { key: "execute_delay_ms" '
        'value { string_value: "never" } }\n',
    )
    server = await serve(root)

    with pytest.raises(ModelLoadError):
        await server.load_model("m")
    await server.settled()

    assert [call[1] for call in recorder.calls] == ["LOAD", "LOAD_FAIL"]


async def test_rep_111_config_that_is_refused_after_load_is_told_as_well(serve, root, recorder):
    write_identity(
        root, "m", extra=agent("recorder") + "version_policy { specific { versions: 7 } }\n"
    )
    server = await serve(root)

    with pytest.raises(ModelLoadError, match="at least one version"):
        await server.load_model("m")

    assert [call[1] for call in recorder.calls] == ["LOAD", "LOAD_FAIL"]


async def test_rep_111_agent_may_redirect_to_another_directory(serve, root, recorder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    recorder.redirect = write_identity(
        elsewhere, "other", versions=(7,), extra="version_policy { all { } }\n"
    )
    write_identity(root, "m", extra=agent("recorder"))
    server = await serve(root)

    await server.load_model("m")

    assert rows(server.repository_index()) == ["m:7 READY"]
    assert server.model_config("m").version_policy.WhichOneof("policy_choice") == "all"
    await server.unload_model("m")
    await server.settled()
    assert recorder.redirect.is_dir()


async def test_rep_112_error_of_an_agent_stops_the_load_with_its_message(serve, root, recorder):
    write_identity(root, "m", extra=agent("recorder"))
    recorder.refuse = "the licence has expired"
    server = await serve(root)

    with pytest.raises(ModelLoadError, match="recorder.*the licence has expired"):
        await server.load_model("m")

    [row] = server.repository_index()
    assert row.state == "UNAVAILABLE"
    assert "the licence has expired" in row.reason
    assert [call[1] for call in recorder.calls] == ["LOAD", "LOAD_FAIL"]


async def test_rep_112_refused_reload_keeps_what_served(serve, root, recorder):
    write_identity(root, "m", extra=agent("recorder", id="1"))
    server = await serve(root)
    await server.load_model("m")
    recorder.refuse = "no"
    write_identity(root, "m", extra=agent("recorder", id="2"))

    with pytest.raises(ModelLoadError):
        await server.load_model("m")

    assert (await server.infer_async(identity_request("m"))).error is None


async def test_rep_112_what_an_agent_raises_later_stops_nothing(serve, root, recorder):
    write_identity(root, "m", extra=agent("recorder", fails_at="LOAD_COMPLETE"))
    server = await serve(root)

    await server.load_model("m")
    await wait_until(lambda: len(recorder.calls) == 2)

    assert (await server.infer_async(identity_request("m"))).error is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nobody", r"for repo agent 'nobody'.*checksum"),
        ("stranger", "must derive from"),
        ("missing", "cannot be made"),
    ],
)
async def test_rep_112_agent_that_is_not_there_is_told(serve, root, recorder, name, told):
    write_identity(root, "m", extra=agent(name))
    server = await serve(root)
    with pytest.raises(ModelLoadError, match=told):
        await server.load_model("m")


async def test_cli_110_agents_may_lie_in_a_directory(serve, root, tmp_path):
    """--repoagent-directory: <agent>/agent.py with a class Agent."""
    (tmp_path / "agents/mine").mkdir(parents=True)
    (tmp_path / "agents/mine/agent.py").write_text(RECORDER.replace("Recorder", "Agent"))
    (tmp_path / "agents/empty").mkdir()
    (tmp_path / "agents/empty/agent.py").write_text("")
    write_identity(root, "m", extra=agent("mine"))
    write_identity(root, "n", extra=agent("empty"))
    server = await serve(root, repoagent_directory=tmp_path / "agents")

    await server.load_model("m")
    with pytest.raises(ModelLoadError, match="'empty' has no class Agent in agent.py"):
        await server.load_model("n")

    assert (await server.infer_async(identity_request("m"))).error is None


async def test_rep_110_agents_are_called_in_order_of_the_config(serve, root, recorder):
    write_identity(root, "m", extra=agents_of(agent("recorder", id="1"), agent("recorder", id="2")))
    server = await serve(root)

    await server.load_model("m")

    assert recorder.calls[:2] == [("1", "LOAD"), ("2", "LOAD")]


async def test_rep_110_model_with_an_agent_is_reloaded_as_a_whole(serve, root, recorder):
    write_identity(root, "m", extra=agent("recorder"))
    server = await serve(root)
    await server.load_model("m")
    model = server.model("m")

    write_identity(root, "m", extra=agent("recorder") + "instance_group { count: 2 }\n")
    await server.load_model("m")

    assert server.model("m") is not model


def test_rep_111_redirect_is_refused_outside_of_load(tmp_path):
    model = AgentModel("m", pb.ModelConfig(), {}, tmp_path, action=Action.UNLOAD)
    with pytest.raises(InvalidArgumentError, match="during LOAD only, not at UNLOAD"):
        model.redirect(tmp_path)

    model.action = Action.LOAD
    with pytest.raises(InvalidArgumentError, match="is no directory"):
        model.redirect(tmp_path / "absent")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, Action.UNLOAD),
        (Action.LOAD, Action.UNLOAD),
        (Action.LOAD, Action.LOAD),
        (Action.LOAD_COMPLETE, Action.UNLOAD_COMPLETE),
        (Action.LOAD_FAIL, Action.UNLOAD),
        (Action.UNLOAD_COMPLETE, Action.LOAD),
    ],
)
def test_rep_111_only_the_legal_order_is_accepted(tmp_path, before, after):
    model = AgentModel("m", pb.ModelConfig(), {}, tmp_path, action=before)
    with pytest.raises(InternalError, match="cannot follow"):
        agents._call(ChecksumAgent(), after, model)


# The checksum agent


async def test_rep_113_right_digest_loads_and_a_wrong_one_is_refused(serve, root):
    model = write_identity(root, "m")
    (model / "1" / "weights").write_bytes(b"weights")
    digest = hashlib.md5(b"weights", usedforsecurity=False).hexdigest()
    write_identity(root, "m", extra=agent("checksum", **{"MD5:1/weights": digest.upper()}))
    server = await serve(root)

    await server.load_model("m")
    assert (await server.infer_async(identity_request("m"))).error is None

    (model / "1" / "weights").write_bytes(b"changed")
    with pytest.raises(ModelLoadError, match="(?i)mismatched md5 hash for file 1/weights"):
        await server.load_model("m")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("MD5:absent", "'absent' cannot be read"),
        ("MD5:../secret", "lies outside the model directory"),
        ("MD5:/etc/hostname", "lies outside the model directory"),
        ("CRC:file", "write MD5:<file> or SHA256:<file>"),
        ("MD5", "write MD5:<file> or SHA256:<file>"),
    ],
)
def test_rep_113_what_cannot_be_compared_is_refused(tmp_path, key, told):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidArgumentError, match=told):
        verify(tmp_path, {key: "0" * 32})


def test_rep_113_sha256_works_too(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    verify(tmp_path, {"SHA256:file": hashlib.sha256(b"x").hexdigest()})
    with pytest.raises(InvalidArgumentError, match="mismatched SHA256"):
        verify(tmp_path, {"SHA256:file": "0" * 64})
