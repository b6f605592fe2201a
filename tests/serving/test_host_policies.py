"""Host policies bind instances to CPU cores. Spec CFG-068."""

from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest

from serving import cli
from serving.backends.base import LoadedModel, ModelInstance, Placement
from serving.backends.identity import IdentityBackend
from serving.backends.registry import BackendRegistry
from serving.clock import LoopClock
from serving.errors import ServingError
from serving.host_policies import HostPolicy, cores_of, parse_cores
from serving.model import Model
from serving.services import ModelServices
from tests.serving.instance.python_models import CONFIG, context_for
from tests.serving.loading import IDENTITY, context_of, load, outputs_of

HERE = min(os.sched_getaffinity(0))
ONE = HostPolicy(cpu_cores=frozenset({HERE}))


@pytest.mark.parametrize(
    ("text", "cores"), [("0", {0}), ("0-3", {0, 1, 2, 3}), ("1,3-4, 8", {1, 3, 4, 8})]
)
def test_cores_are_listed_one_by_one_and_in_ranges(text, cores):
    assert parse_cores(text) == cores


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-", "0-99999", "5000"])
def test_a_wrong_list_of_cores_is_refused(text):
    with pytest.raises(ValueError, match="core"):
        parse_cores(text)


def test_a_numa_node_allows_its_own_cores_and_a_list_narrows_them(tmp_path):
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text(f"{HERE}-4000\n")

    assert cores_of("p", HostPolicy(1), tmp_path) == os.sched_getaffinity(0)
    assert cores_of("p", HostPolicy(1, frozenset({HERE})), tmp_path) == {HERE}


def test_what_the_machine_does_not_have_is_named(tmp_path):
    with pytest.raises(ValueError, match="'p' asks for NUMA node 7, which this machine"):
        cores_of("p", HostPolicy(7), tmp_path)
    with pytest.raises(ValueError, match="'p' leaves no CPU core: this server may use cores"):
        cores_of("p", HostPolicy(cpu_cores=frozenset({4000})))


class _Recording(IdentityBackend):
    """Notes where each instance is created, and on which cores its thread may run."""

    def __init__(self) -> None:
        self.seen: list[tuple[Placement, set[int]]] = []

    def load(self, context) -> LoadedModel:
        made = super().load(context)
        create = made.create_instance

        def create_instance(placement: Placement) -> ModelInstance:
            self.seen.append((placement, os.sched_getaffinity(0)))
            return create(placement)

        made.create_instance = create_instance  # type: ignore[method-assign]
        return made


@pytest.mark.parametrize(
    ("group", "policy"),
    [
        ("kind: KIND_CPU", "cpu"),
        ("kind: KIND_MODEL", "model"),
        ("kind: KIND_GPU gpus: [1]", "gpu_1"),
        ('kind: KIND_CPU host_policy: "mine"', "mine"),
    ],
)
async def test_an_instance_follows_the_policy_of_its_group_or_of_its_kind(group, policy):
    backend, clock = _Recording(), LoopClock(asyncio.get_running_loop())
    services = ModelServices(clock, gpu_count=2, host_policies={policy: ONE})
    context = context_of(f"{IDENTITY} instance_group {{ {group} }}")

    model = await Model.load(context, backend, services)

    assert [cores for _, cores in backend.seen] == [{HERE}]
    assert os.sched_getaffinity(0) != {HERE} or os.cpu_count() == 1
    await model.drain_and_close()


async def test_the_policy_of_another_kind_is_not_followed():
    backend, clock = _Recording(), LoopClock(asyncio.get_running_loop())
    services = ModelServices(clock, host_policies={"gpu_0": ONE})

    model = await Model.load(context_of(IDENTITY), backend, services)

    assert backend.seen[0][1] == os.sched_getaffinity(0)
    await model.drain_and_close()


WHERE = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        cores = np.array(sorted(os.sched_getaffinity(0)), np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", cores)]) for _ in requests]
"""


async def test_the_process_of_an_instance_is_bound_as_a_whole(tmp_path):
    clock = LoopClock(asyncio.get_running_loop())
    services = ModelServices(clock, host_policies={"cpu": ONE})
    backend = BackendRegistry().get("python")

    model = await Model.load(context_for(tmp_path, WHERE, CONFIG), backend, services)

    answer = await outputs_of(model, {"IN": np.zeros(1, np.float32)})
    assert answer["OUT"].tolist() == [HERE]
    await model.drain_and_close()


async def test_a_policy_that_the_machine_cannot_follow_fails_the_load():
    policies = {"cpu": HostPolicy(cpu_cores=frozenset({4000}))}

    with pytest.raises(ServingError, match="check: host policy 'cpu' leaves no CPU core"):
        await load(IDENTITY + "instance_group { kind: KIND_CPU }", host_policies=policies)


async def test_a_group_that_names_an_unknown_policy_loads_with_a_warning(caplog):
    model = await load(IDENTITY + 'instance_group { kind: KIND_CPU host_policy: "nope" }')

    assert "there is no --host-policy 'nope'" in caplog.text
    await model.drain_and_close()


def test_settings_of_one_policy_add_up_on_the_command_line():
    parsed = cli.parse(
        ["--model-repository=r", "--host-policy=p,cpu-cores=0-1", "--host-policy=p,numa-node=0"]
    )

    assert parsed.server.host_policies == {"p": HostPolicy(0, frozenset({0, 1}))}


@pytest.mark.parametrize(
    "text", ["p", "p,cores=1", ",cpu-cores=1", "p,cpu-cores=x", "p,numa-node=a"]
)
def test_a_wrong_host_policy_option_says_what_it_expects(text):
    with pytest.raises(cli.CommandLineError, match="host-policy"):
        cli.parse(["--model-repository=r", f"--host-policy={text}"])
