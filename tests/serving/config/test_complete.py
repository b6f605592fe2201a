"""What the server fills into a config, as a real Triton does it."""

from __future__ import annotations

import pytest

from serving.config.complete import complete
from serving.config.json_form import to_json
from serving.config.pbtxt import parse
from serving.config.protobuf import pb
from tests.serving.config.data import GOOD, TRITON_JSON

CPU = pb.ModelInstanceGroup.KIND_CPU
GPU = pb.ModelInstanceGroup.KIND_GPU


def completed(text, tmp_path=None, *, name="m", files=(), **options):
    directory = None
    if tmp_path is not None:
        directory = tmp_path / name
        for file in files:
            path = directory / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    config = parse(text).config
    complete(config, name=name, model_directory=directory, **options)
    return config


@pytest.mark.parametrize("name", TRITON_JSON)
def test_the_completed_config_is_what_a_real_triton_shows(name):
    config = completed(GOOD[name], name=name)

    assert to_json(config) == TRITON_JSON[name]


@pytest.mark.parametrize(
    ("files", "backend", "platform", "filename"),
    [
        (["1/model.onnx"], "onnxruntime", "onnxruntime_onnx", "model.onnx"),
        (["1/model.onnx/model.onnx"], "onnxruntime", "onnxruntime_onnx", "model.onnx"),
        (["1/model.plan"], "tensorrt", "tensorrt_plan", "model.plan"),
        (["1/model.pt", "1/model.pt2"], "pytorch", "pytorch_libtorch", "model.pt"),
        (["1/model.pt2"], "pytorch", "torch_aoti", "model.pt2"),
        (["1/model.py"], "python", "", "model.py"),
        (["1/model.xml"], "openvino", "", "model.xml"),
        (["10/model.py", "9/model.onnx"], "python", "", "model.py"),
    ],
)
def test_the_backend_is_told_by_the_files(tmp_path, files, backend, platform, filename):
    config = completed("", tmp_path, files=files)

    assert (config.backend, config.platform) == (backend, platform)
    assert config.default_model_filename == filename
    assert config.name == "m"


def test_a_directory_name_with_a_dot_tells_the_backend(tmp_path):
    config = completed("", tmp_path, name="resize.custom", files=["1/data.bin"])

    assert (config.backend, config.default_model_filename) == ("custom", "model.custom")


def test_nothing_is_guessed_where_no_file_tells(tmp_path):
    assert completed("", tmp_path, files=["1/weights.bin"]).backend == ""


def test_a_platform_tells_the_backend():
    config = completed('platform: "torch_aoti"')

    assert (config.backend, config.default_model_filename) == ("pytorch", "model.pt2")


def test_given_values_are_kept():
    text = 'backend: "onnxruntime" default_model_filename: "net.onnx" version_policy { all {} }'

    config = completed(text)

    assert config.default_model_filename == "net.onnx"
    assert config.version_policy.WhichOneof("policy_choice") == "all"


@pytest.mark.parametrize(
    ("text", "gpu_count", "kind", "count", "gpus"),
    [
        ('backend: "onnxruntime"', 0, CPU, 2, []),
        ('backend: "onnxruntime"', 2, GPU, 1, [0, 1]),
        ('backend: "python"', 2, CPU, 1, []),
        ('backend: "python" instance_group { gpus: 1 }', 2, GPU, 1, [1]),
        ('backend: "onnxruntime" instance_group { gpus: 5 }', 2, CPU, 2, [5]),
        ('backend: "onnxruntime" instance_group { kind: KIND_CPU count: 3 }', 2, CPU, 3, []),
        ('backend: "onnxruntime" instance_group { kind: KIND_CPU count: -1 }', 0, CPU, 2, []),
        # They use no GPU of NVIDIA.
        ('backend: "fil"', 2, CPU, 1, []),
        ('backend: "openvino"', 2, CPU, 1, []),
        ('backend: "tensorflow"', 0, CPU, 2, []),
    ],
)
def test_instance_groups_get_kind_count_and_gpus(text, gpu_count, kind, count, gpus):
    (group,) = completed(text, gpu_count=gpu_count).instance_group

    assert (group.kind, group.count, list(group.gpus)) == (kind, count, gpus)


def test_groups_are_named_by_their_index_and_a_missing_section_by_the_model():
    assert completed('backend: "python"').instance_group[0].name == "m"

    text = 'backend: "python" instance_group [ {}, { name: "x" }, {} ]'

    assert [item.name for item in completed(text).instance_group] == ["m_0", "x", "m_2"]


def test_completing_twice_changes_nothing_more():
    config = completed('backend: "onnxruntime" max_batch_size: 4 dynamic_batching { }')
    once = pb.ModelConfig()
    once.CopyFrom(config)

    assert complete(config, name="m", model_directory=None) == []
    assert config == once


def test_the_filled_fields_are_told():
    config = parse('backend: "onnxruntime" max_batch_size: 4 dynamic_batching { }').config

    filled = complete(config, name="m", model_directory=None)

    assert filled == [
        "name",
        "platform",
        "default_model_filename",
        "version_policy",
        "dynamic_batching.preferred_batch_size",
        "optimization.input_pinned_memory",
        "optimization.output_pinned_memory",
        "instance_group",
        "instance_group[0].kind",
        "instance_group[0].count",
    ]


def test_an_ensemble_gets_no_instances():
    config = completed('platform: "ensemble" ensemble_scheduling { }')

    assert not config.instance_group
    assert not config.HasField("optimization")
    assert config.version_policy.latest.num_versions == 1
