"""Modules written in Python: which class, which weights, how they are compiled and served."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap

import numpy as np
import pytest
import torch

from serving.backends.base import Placement
from serving.backends.pytorch.backend import PyTorchBackend
from serving.backends.pytorch.python_runtime import PythonRuntimeModel
from serving.config.complete import complete
from serving.config.decode import InstanceKind
from serving.config.protobuf import pb
from serving.errors import ErrorCode, ServingError
from tests.serving.backends.pytorch import modules
from tests.serving.backends.pytorch.served import failure, io
from tests.serving.loading import context_of, load, outputs_of

HEAD = 'name: "m" backend: "pytorch" runtime: "model.py" max_batch_size: 8\n'
NET = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 8)
            self.second = torch.nn.Linear(8, 2)

        def forward(self, x):
            if x.shape[1] == 1:
                raise KeyError("one is too few")
            return self.second(torch.relu(self.first(x)))
"""
SUMS = """
    import os
    import torch
    from shapes import halved

    class Sums(torch.nn.Module):
        def forward(self, left, right):
            process = torch.full((left.shape[0], 1), float(os.getpid()))
            rows = torch.full((left.shape[0], 1), float(left.shape[0]))
            return [left + right, process, rows, halved(right)]
"""
SUMS_CONFIG = (
    HEAD
    + io("input", "right_one", "left_one")
    + io("output", "SUM", "PROCESS", "ROWS", "HALF")
    + "dynamic_batching { preferred_batch_size: [3] max_queue_delay_microseconds: 2000000 }\n"
)


def compiled(**given):
    text = json.dumps(json.dumps(given))
    name = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
    return f'parameters {{ key: "{name}" value {{ string_value: {text} }} }}\n'


NET_CONFIG = HEAD + io("input", "x") + io("output", "y") + compiled(disable=True)


@pytest.fixture(autouse=True)
def process(monkeypatch):
    """What a process of its own would be: a search path and threads that nobody else has."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "path", list(sys.path))
    # torch takes the number once in a process; what becomes of it is tested with the parameters.
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda count: None)
    yield
    torch.set_num_threads(threads)


def write(directory, source, name="model.py"):
    (directory / "1").mkdir(exist_ok=True)
    (directory / "1" / name).write_text(textwrap.dedent(source))


def instance_of(directory, text=NET_CONFIG):
    """As the main thread of an instance process makes it."""
    context = context_of(text, directory)
    return PythonRuntimeModel(context).create_instance(Placement("m_0", InstanceKind.CPU))


def refused(directory, text=NET_CONFIG):
    with pytest.raises(ServingError) as caught:
        instance_of(directory, text)
    return caught.value.message


async def test_a_module_runs_in_a_process_of_its_own(tmp_path):
    """PT-24, PT-26: tensors in the order of the config, batches put together and cut again."""
    write(tmp_path, SUMS)
    write(tmp_path, "def halved(x):\n    return x / 2\n", "shapes.py")
    model = await load(SUMS_CONFIG + compiled(disable=True), tmp_path)
    sent = [np.full((1 + i, 2), i + 1, np.float32) for i in range(2)]

    answers = await asyncio.gather(
        *(outputs_of(model, {"left_one": x * 10, "right_one": x}) for x in sent)
    )

    for x, answer in zip(sent, answers, strict=True):
        np.testing.assert_array_equal(answer["SUM"], x * 11)
        np.testing.assert_array_equal(answer["HALF"], x * 5)  # the second of the config
        assert answer["ROWS"].tolist() == [[3]] * len(x)
        assert answer["PROCESS"][0, 0] != os.getpid()
    error = await failure(
        model, {"left_one": np.ones((1, 2), np.float32), "right_one": np.ones((1, 3), np.float32)}
    )
    assert error.code is ErrorCode.INVALID_ARG
    assert "must match the size of tensor b" in error.message
    await model.drain_and_close()


def test_only_models_of_the_python_runtime_need_a_process():
    """PT-24."""
    backend = PyTorchBackend()

    assert backend.runs_in_child(context_of(HEAD))
    assert not backend.runs_in_child(context_of(HEAD.replace('runtime: "model.py"', "")))


def test_weights_come_from_the_file_of_the_same_name(tmp_path):
    """PT-24: a state dict."""
    net = modules.seeded_net()
    write(tmp_path, NET, "mine.py")
    torch.save(net.state_dict(), tmp_path / "1" / "mine.pt")
    instance = instance_of(tmp_path, NET_CONFIG + 'default_model_filename: "mine.py"')
    x = np.arange(8, dtype=np.float32).reshape(2, 4)

    answer = instance.run({"x": x}, ["y"])["y"]

    with torch.no_grad():
        np.testing.assert_allclose(answer, net(torch.from_numpy(x)).numpy(), rtol=1e-6)


def test_without_weights_the_module_is_as_its_constructor_made_it(tmp_path):
    """PT-24."""
    write(tmp_path, NET)

    answer = instance_of(tmp_path).run({"x": np.ones((1, 4), np.float32)}, ["y"])

    assert answer["y"].shape == (1, 2)


def test_a_torchscript_file_is_served_as_well(tmp_path):
    """PT-24, REP-025: where there is no model.py."""
    modules.write(modules.Sums(), tmp_path)
    text = HEAD + io("input", "a", "b") + io("output", "s", "d")
    one = np.ones((1, 1), np.float32)

    answer = instance_of(tmp_path, text).run({"a": one * 3, "b": one}, ["d", "s"])

    assert (answer["s"].item(), answer["d"].item()) == (4, 2)


@pytest.mark.parametrize(
    ("files", "named", "wanted"),
    [
        (["model.pt", "model.py", "own.py"], "own.py", "own.py"),
        (["model.pt", "model.py"], "gone.py", "model.py"),
        (["model.pt", "model.py"], "", "model.py"),
        (["model.pt"], "", "model.pt"),
    ],
)
def test_files_are_looked_for_in_order(tmp_path, files, named, wanted):
    """REP-025."""
    for name in files:
        write(tmp_path, "", name)
    text = NET_CONFIG + (f'default_model_filename: "{named}"' if named else "")

    assert PythonRuntimeModel(context_of(text, tmp_path))._path.name == wanted


def test_a_model_without_any_file_is_unavailable(tmp_path):
    """PT-29."""
    (tmp_path / "1").mkdir()

    assert "unable to find '1/model.py' for model 'm'" in refused(tmp_path)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import torch", "'1/model.py' defines no subclass of torch.nn.Module"),
        ("from torch.nn import Linear", "defines no subclass"),
        (
            "import torch\nclass A(torch.nn.Module): pass\nclass B(A): pass",
            "several subclasses of torch.nn.Module: A, B; begin the names of those that are parts",
        ),
        (
            "import torch\nclass A(torch.nn.Module):\n  def __init__(self, size): pass",
            "A() failed: TypeError",
        ),
        ("import nothing_like_it", "importing 'm/1/model.py' failed: ModuleNotFoundError"),
        ("class", "'m/1/model.py', line 1: SyntaxError"),
    ],
)
def test_a_file_without_the_one_class_is_refused(tmp_path, source, words):
    """PT-24."""
    write(tmp_path, source)

    assert words in refused(tmp_path)


def test_classes_with_an_underscore_are_parts(tmp_path):
    """PT-24: one model may be put together of several modules."""
    write(
        tmp_path,
        """
        import torch

        class _Half(torch.nn.Module):
            def forward(self, x):
                return x / 2

        class Quarter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.part = _Half()

            def forward(self, x):
                return self.part(self.part(x))
        """,
    )

    answer = instance_of(tmp_path).run({"x": np.ones((1, 1), np.float32)}, ["y"])

    assert answer["y"].item() == 0.25


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (b"not a file of torch", "1/model.pt holds no weights that can be read"),
        (modules.Gradient, "the weights in 1/model.pt do not fit the module in 1/model.py"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, weights, words):
    """PT-24."""
    write(tmp_path, NET)
    if isinstance(weights, bytes):
        (tmp_path / "1" / "model.pt").write_bytes(weights)
    else:
        torch.save(weights().state_dict(), tmp_path / "1" / "model.pt")

    message = refused(tmp_path)

    assert words in message
    assert "\n" not in message


def test_an_exception_of_the_model_is_told_with_its_line(tmp_path):
    write(tmp_path, NET)
    instance = instance_of(tmp_path)

    with pytest.raises(ServingError) as caught:
        instance.run({"x": np.ones((1, 1), np.float32)}, ["y"])

    assert "KeyError: 'one is too few'" in caught.value.message
    assert "1/model.py(12): forward" in caught.value.message
    assert "torch/nn" not in caught.value.message


def test_threads_are_one_unless_the_config_says_more(tmp_path):
    """PT-25."""
    write(tmp_path, NET)
    more = 'parameters { key: "NUM_THREADS" value { string_value: "2" } }\n'

    found = []
    for text in (NET_CONFIG, NET_CONFIG + more):
        instance_of(tmp_path, text)
        found.append(torch.get_num_threads())

    assert found == [1, 2]


def test_the_parameters_of_torch_compile_reach_it(tmp_path, monkeypatch):
    """PT-25: without any it compiles as well; `disable` leaves the module alone."""
    write(tmp_path, NET)
    calls = []
    monkeypatch.setattr(torch, "compile", lambda module, **given: calls.append(given) or module)
    plain = HEAD + io("input", "x") + io("output", "y")

    for extra in ("", compiled(backend="eager", fullgraph=True), compiled(disable=True)):
        instance_of(tmp_path, plain + extra)

    assert calls == [{}, {"backend": "eager", "fullgraph": True}]


def test_what_torch_compile_refuses_is_told_in_one_line(tmp_path):
    """PT-25."""
    write(tmp_path, NET)
    plain = HEAD + io("input", "x") + io("output", "y")

    message = refused(tmp_path, plain + compiled(mode="default", options={"max_autotune": True}))

    assert "parameter 'TORCH_COMPILE_OPTIONAL_PARAMETERS' of model 'm' is refused" in message
    assert "mode" in message.partition("torch.compile: ")[2]
    assert "\n" not in message


@pytest.mark.heavy
def test_a_compiled_module_answers_as_the_module_does(tmp_path):
    """PT-24: the real torch.compile, which takes its time at the first call."""
    net = modules.seeded_net()
    write(tmp_path, NET)
    torch.save(net.state_dict(), tmp_path / "1" / "model.pt")
    instance = instance_of(tmp_path, HEAD + io("input", "x") + io("output", "y"))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)

    answer = instance.run({"x": x}, ["y"])["y"]

    with torch.no_grad():
        np.testing.assert_allclose(answer, net(torch.from_numpy(x)).numpy(), rtol=1e-5)


def test_text_has_no_place_in_the_python_runtime(tmp_path):
    """PT-24."""
    write(tmp_path, NET)
    text = NET_CONFIG.replace("TYPE_FP32", "TYPE_STRING", 1)

    assert "input 'x' of model 'm' is TYPE_STRING" in refused(tmp_path, text)


def test_a_complete_config_leaves_the_file_to_the_runtime(tmp_path):
    """REP-025: model.pt is the last that it looks for."""
    config = pb.ModelConfig(name="m", backend="pytorch", runtime="model.py")
    complete(config, name="m", model_directory=tmp_path)

    assert config.default_model_filename == ""


PLACES = """
    import torch

    class Places(torch.nn.Module):
        def forward(self, a=None, b=None, c=None):
            return sum(
                (item * 10**place for place, item in enumerate((a, b, c)) if item is not None),
                torch.zeros(1, 1),
            )
"""
PLACES_CONFIG = (
    HEAD
    + io("input", "one", "two", "three").replace("] }", "] optional: true }")
    + io("output", "y")
)


@pytest.mark.parametrize(
    ("given", "answer"), [(["one", "two", "three"], 111), (["one", "three"], 101), (["two"], 10)]
)
def test_an_input_that_is_left_out_moves_no_other(tmp_path, given, answer):
    write(tmp_path, PLACES)
    instance = instance_of(tmp_path, PLACES_CONFIG + compiled(disable=True))

    answered = instance.run({name: np.ones((1, 1), np.float32) for name in given}, ["y"])

    assert answered["y"].tolist() == [[answer]]


class Wrapped(torch.nn.Module):
    """As torch.compile wraps a module."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, *args, **kwargs):
        return self._orig_mod(*args, **kwargs)


def test_a_compiled_module_has_the_parameters_that_were_written(tmp_path, monkeypatch):
    write(tmp_path, PLACES)
    monkeypatch.setattr(torch, "compile", Wrapped)

    instance = instance_of(tmp_path, PLACES_CONFIG)

    answered = instance.run({"three": np.ones((1, 1), np.float32)}, ["y"])
    assert answered["y"].tolist() == [[100]]


def test_an_input_may_be_left_out_where_those_after_it_have_names(tmp_path):
    write(
        tmp_path, PLACES.replace("a=None, b=None, c=None", "*given").replace("(a, b, c)", "given")
    )

    message = refused(tmp_path, PLACES_CONFIG + compiled(disable=True))

    assert "forward has 0 named parameters for 3 inputs" in message
