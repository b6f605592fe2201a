"""Several repositories: duplicates are refused (REP-010), or each is a namespace (REP-011)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving import cli, metrics
from serving.errors import InvalidArgumentError, ModelLoadError
from serving.frontends.metrics_http import _Counters
from serving.options import ControlMode
from tests.serving.model_files import identity_request, write_identity
from tests.serving.repository.fakes import rows
from tests.waiting import wait_until


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    return one, two


# REP-010: without namespacing


async def test_rep_010_doubled_model_is_refused_and_the_others_are_served(serve, roots):
    write_identity(roots[0], "both")
    write_identity(roots[1], "both")
    write_identity(roots[1], "single")
    server = await serve(*roots, model_control_mode=ControlMode.NONE, exit_on_error=False)

    assert rows(server.repository_index()) == [
        "both: UNAVAILABLE model appears in two or more repositories",
        "single:1 READY",
    ]
    assert not server.is_ready()


async def test_rep_010_explicit_load_works_again_when_one_copy_is_gone(serve, roots, tmp_path):
    write_identity(roots[0], "both")
    second = write_identity(roots[1], "both")
    server = await serve(*roots)
    with pytest.raises(InvalidArgumentError, match="two or more repositories"):
        await server.load_model("both")

    second.rename(tmp_path / "away")
    await server.load_model("both")

    assert rows(server.repository_index()) == ["both:1 READY"]
    assert server.is_ready()


async def test_rep_010_poll_loads_the_model_when_one_copy_is_gone(serve, roots, tmp_path):
    write_identity(roots[0], "both")
    second = write_identity(roots[1], "both")
    server = await serve(
        *roots,
        model_control_mode=ControlMode.POLL,
        repository_poll_secs=0.05,
        exit_on_error=False,
    )
    assert not server.is_ready()

    second.rename(tmp_path / "away")

    await wait_until(lambda: rows(server.repository_index()) == ["both:1 READY"], 10)
    assert server.is_ready()


async def test_rep_010_served_model_goes_on_while_a_second_copy_lies_beside_it(
    serve, roots, tmp_path
):
    write_identity(roots[0], "both")
    server = await serve(*roots, model_control_mode=ControlMode.POLL, repository_poll_secs=0.05)
    write_identity(roots[1], "both")

    def is_told() -> bool:
        return any("two or more" in row.reason for row in server.repository_index())

    await wait_until(is_told, 10)
    assert (await server.infer_async(identity_request("both"))).error is None


# REP-011: with namespacing


async def test_rep_011_model_of_one_name_is_served_from_both_repositories(serve, roots):
    write_identity(roots[0], "both")
    write_identity(roots[1], "both", versions=(3,))
    server = await serve(*roots, model_control_mode=ControlMode.NONE, model_namespacing=True)

    assert [
        (row.name, row.version, row.state, row.namespace) for row in server.repository_index()
    ] == [
        ("both", 1, "READY", str(roots[0])),
        ("both", 3, "READY", str(roots[1])),
    ]
    assert server.is_ready()


async def test_rep_011_bare_name_in_two_namespaces_is_refused(serve, roots):
    write_identity(roots[0], "both")
    write_identity(roots[1], "both")
    write_identity(roots[1], "single")
    server = await serve(*roots, model_control_mode=ControlMode.NONE, model_namespacing=True)

    for ask in (
        server.infer_async(identity_request("both")),
        server.infer_async(identity_request("both", 1)),
    ):
        with pytest.raises(InvalidArgumentError, match="namespace must be provided"):
            await ask
    assert (await server.infer_async(identity_request("single"))).error is None
    assert server.model_metadata("single")["versions"] == ["1"]


async def test_rep_011_unknown_name_is_an_invalid_argument(serve, roots):
    server = await serve(*roots, model_namespacing=True)
    with pytest.raises(InvalidArgumentError, match="unknown model: 'nope'"):
        await server.infer_async(identity_request("nope"))


async def test_rep_011_name_is_no_longer_ambiguous_when_one_copy_is_gone(serve, roots, tmp_path):
    write_identity(roots[0], "both")
    second = write_identity(roots[1], "both")
    server = await serve(
        *roots,
        model_control_mode=ControlMode.POLL,
        repository_poll_secs=0.05,
        model_namespacing=True,
    )

    second.rename(tmp_path / "away")
    await wait_until(lambda: len(server.repository_index()) == 1, 10)

    assert [row.namespace for row in server.repository_index()] == [str(roots[0])]


async def test_rep_011_load_and_unload_by_name_reach_every_namespace(serve, roots):
    write_identity(roots[0], "both")
    write_identity(roots[1], "both")
    server = await serve(*roots, model_namespacing=True)
    assert rows(server.repository_index()) == ["both:", "both:"]

    await server.load_model("both")
    assert rows(server.repository_index()) == ["both:1 READY", "both:1 READY"]

    await server.unload_model("both")
    await server.settled()
    assert rows(server.repository_index()) == ["both:1 UNAVAILABLE unloaded"] * 2


async def test_rep_011_broken_copy_does_not_concern_the_other_namespace(serve, roots):
    write_identity(roots[0], "both")
    write_identity(roots[1], "both", extra="nonsense: 1\n")
    server = await serve(*roots, model_namespacing=True)

    with pytest.raises(ModelLoadError, match="nonsense"):
        await server.load_model("both")

    assert [row.state for row in server.repository_index()] == ["READY", "UNAVAILABLE"]


async def test_rep_011_load_of_a_name_in_no_repository_is_an_error(serve, roots):
    server = await serve(*roots, model_namespacing=True)
    with pytest.raises(InvalidArgumentError, match="failed to poll from model repository"):
        await server.load_model("nope")
    await server.unload_model("nope")


async def test_rep_011_own_namespace_comes_first_where_one_is_known(serve, roots):
    write_identity(roots[0], "both")
    write_identity(roots[1], "both")
    write_identity(roots[1], "single")
    server = await serve(*roots, model_control_mode=ControlMode.NONE, model_namespacing=True)
    routing = server._lifecycle

    assert routing.resolve("both", namespace=str(roots[1])).namespace == str(roots[1])
    assert routing.resolve("single", namespace=str(roots[0])).namespace == str(roots[1])


async def test_rep_011_metrics_carry_the_namespace(serve, roots):
    write_identity(roots[0], "m")
    server = await serve(*roots, model_control_mode=ControlMode.NONE, model_namespacing=True)

    page = metrics.render([_Counters(model) for model in server.metrics_models()])

    labels = f'{{model="m",namespace="{roots[0]}",version="1"}}'
    assert f"nv_inference_request_success{labels} 0" in page


async def test_rep_011_metrics_have_no_namespace_without_the_option(serve, tmp_path):
    write_identity(tmp_path, "m")
    server = await serve(model_control_mode=ControlMode.NONE)

    page = metrics.render([_Counters(model) for model in server.metrics_models()])

    assert 'nv_inference_request_success{model="m",version="1"} 0' in page


def test_rep_011_option_on_the_command_line():
    line = cli.parse(["--model-repository=/m", "--model-namespacing=true"])
    assert line is not None
    assert line.server.model_namespacing
