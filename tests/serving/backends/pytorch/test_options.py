"""The parameters of PyTorch models: defaults, values, and what is refused."""

from __future__ import annotations

import json

import pytest

from serving.config.torch_parameters import PythonOptions, TorchOptions
from serving.errors import InvalidArgumentError


def test_defaults_are_those_of_triton():
    """PT-15 to PT-21."""
    options = TorchOptions.of({})

    assert options.optimized_execution
    assert options.inference_mode
    assert options.cudnn
    assert not options.weight_sharing
    assert not options.cache_cleaning
    assert options.jit_executor
    assert options.jit_profiling
    assert options.tensor_fuser
    assert options.inter_op_threads == options.intra_op_threads == 0


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("DISABLE_OPTIMIZED_EXECUTION", "optimized_execution", False),  # PT-15
        ("DISABLE_CUDNN", "cudnn", False),  # PT-17
        ("ENABLE_WEIGHT_SHARING", "weight_sharing", True),  # PT-18
        ("ENABLE_CACHE_CLEANING", "cache_cleaning", True),  # PT-19
        ("CACHE_CLEANING_ENABLED", "cache_cleaning", True),  # PT-19
    ],
)
@pytest.mark.parametrize("text", ["true", "True", "1", " TRUE "])
def test_switches_that_are_off(name, field, value, text):
    """PT-15, PT-17, PT-18, PT-19: both spellings of the last."""
    assert getattr(TorchOptions.of({name: text}), field) is value


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("INFERENCE_MODE", "inference_mode"),  # PT-16
        ("ENABLE_JIT_EXECUTOR", "jit_executor"),  # PT-21
        ("ENABLE_JIT_PROFILING", "jit_profiling"),  # PT-21
        ("ENABLE_TENSOR_FUSER", "tensor_fuser"),  # PT-21
    ],
)
@pytest.mark.parametrize("text", ["false", "False", "0"])
def test_switches_that_are_on(name, field, text):
    """PT-16, PT-21."""
    assert not getattr(TorchOptions.of({name: text}), field)


def test_numbers_of_threads_are_read():
    """PT-20."""
    options = TorchOptions.of({"INTER_OP_THREAD_COUNT": "3", "INTRA_OP_THREAD_COUNT": "5"})

    assert (options.inter_op_threads, options.intra_op_threads) == (3, 5)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"INFERENCE_MODE": "maybe"}, "'INFERENCE_MODE' is 'maybe': it must be true or false"),
        ({"DISABLE_CUDNN": ""}, "'DISABLE_CUDNN' is '': it must be true or false"),
        ({"CACHE_CLEANING_ENABLED": "2"}, "'CACHE_CLEANING_ENABLED' is '2'"),
        ({"INTRA_OP_THREAD_COUNT": "-1"}, "must be a whole number of threads, 0 to 1024"),
        ({"INTRA_OP_THREAD_COUNT": "1025"}, "must be a whole number of threads, 0 to 1024"),
        ({"INTRA_OP_THREAD_COUNT": "9" * 5000}, "must be a whole number of threads, 0 to 1024"),
        ({"INTER_OP_THREAD_COUNT": "two"}, "0 for the number of cores"),
    ],
)
def test_values_that_cannot_be_are_refused_with_the_allowed_ones(parameters, words):
    """PT-15 to PT-21."""
    with pytest.raises(InvalidArgumentError) as caught:
        TorchOptions.of(parameters)

    assert words in caught.value.message


COMPILE = "TORCH_COMPILE_OPTIONAL_PARAMETERS"


def test_the_python_runtime_has_one_thread_and_compiles():
    """PT-25."""
    assert PythonOptions.of({}) == PythonOptions(1, 1, {})


def test_the_python_runtime_reads_its_parameters():
    """PT-25: everything that torch.compile may be told."""
    given = {
        "fullgraph": True,
        "dynamic": None,
        "backend": "eager",
        "mode": "max-autotune",
        "options": {"shape_padding": True},
        "disable": False,
    }
    del given["dynamic"]
    options = PythonOptions.of(
        {"NUM_THREADS": "4", "NUM_INTEROP_THREADS": "2", COMPILE: json.dumps(given)}
    )

    assert options == PythonOptions(4, 2, given)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"NUM_THREADS": "0"}, "'NUM_THREADS' is '0': it must be a whole number of threads, 1 to"),
        ({"NUM_INTEROP_THREADS": "many"}, "'NUM_INTEROP_THREADS' is 'many'"),
        ({COMPILE: "{"}, "is not JSON"),
        ({COMPILE: "[1]"}, 'must be a JSON object, e.g. {"disable": true}'),
        ({COMPILE: '{"model": 1}'}, "'model' is not an optional parameter for torch.compile"),
        ({COMPILE: '{"fast": true}'}, "unknown key 'fast'; known are fullgraph, dynamic, backend"),
        ({COMPILE: '{"disable": "yes"}'}, "'disable' is \"yes\": it must be a boolean"),
        ({COMPILE: '{"options": 3}'}, "'options' is 3: it must be a JSON object"),
        ({COMPILE: '{"mode": "fastest"}'}, "one of default, reduce-overhead, max-autotune"),
    ],
)
def test_wrong_parameters_of_the_python_runtime_are_named(parameters, words):
    """PT-25."""
    with pytest.raises(InvalidArgumentError) as caught:
        PythonOptions.of(parameters)

    assert words in caught.value.message
