"""Settings, profiles, graphs and signatures: everything about an engine that takes no device."""

from __future__ import annotations

import pytest

from serving.backends.base import Placement
from serving.backends.tensorrt import graphs, profiles
from serving.backends.tensorrt.graphs import GraphSpec, specs_of
from serving.backends.tensorrt.options import (
    dla_core_of,
    group_of,
    profile_numbers,
    read_settings,
    refuse_non_linear,
)
from serving.backends.tensorrt.profiles import Profile, ShapeRange
from serving.backends.tensorrt.signature import EngineSignature, EngineTensor, check, complete
from serving.config.decode import InstanceGroup, InstanceKind
from serving.config.protobuf import pb
from serving.errors import InvalidArgumentError, ServingError, UnsupportedError
from tests.serving.loading import config_of, context_of, spec_of

CONFIG = """
name: "m" backend: "tensorrt" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [4] }
output { name: "Y" data_type: TYPE_FP32 dims: [4] }
"""


def settings(config: str = "", **backend_config: str):
    keys = {key.replace("_", "-"): value for key, value in backend_config.items()}
    return read_settings(context_of(CONFIG + config, backend_config=keys))


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


def test_every_setting_of_tritons_backend_is_read(tmp_path):
    """TRT-02."""
    plugin = tmp_path / "libplugin.so"
    plugin.touch()
    read = settings(
        coalesce_request_input="true",
        plugins=f"{plugin};",
        execution_policy="BLOCKING",
        version_compatible="1",
    )
    assert read.plugins == (plugin,)
    assert (read.policy.value, read.is_version_compatible) == ("BLOCKING", True)
    assert settings().policy.value == "DEVICE_BLOCKING"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("coalesce_request_input", "maybe", "must be true or false"),
        ("version_compatible", "2", "must be true or false"),
        ("execution_policy", "FAST", "must be one of DEVICE_BLOCKING, BLOCKING|BLOCKING, DEVICE"),
        ("plugins", "/no/where.so", "there is no such file"),
        ("library", "cutlass", "must be one of tensorrt, tensorrt_rtx"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(name, value, words):
    """TRT-02."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        settings(**{name: value})
    assert value in caught.value.message


def test_the_allocation_strategy_is_static_unless_the_model_says_otherwise():
    """TRT-03."""
    key = "execution_context_allocation_strategy"
    assert settings().allocation == "STATIC"
    assert settings(parameter(key, "ON_PROFILE_CHANGE")).allocation == "ON_PROFILE_CHANGE"
    with pytest.raises(InvalidArgumentError, match="'LAZY': it must be one of STATIC, ON_PROFILE"):
        settings(parameter(key, "LAZY"))


def test_the_models_word_on_the_library_goes_before_the_servers():
    read = settings(parameter("library", "tensorrt_rtx"), library="tensorrt")
    assert (read.library, read.library_asked_by) == ("tensorrt_rtx", "parameter 'library'")
    assert settings().library == ""


def test_vectorized_inputs_are_refused_with_a_reason():
    """TRT-04, CFG-038: reformat-free I/O."""
    config = CONFIG.replace("dims: [4] }", "dims: [4, 2, 2] is_non_linear_format_io: true }", 1)
    with pytest.raises(
        UnsupportedError, match="'X' has is_non_linear_format_io.*without DIRECT_IO"
    ):
        refuse_non_linear(context_of(config))


def group(**fields) -> InstanceGroup:
    return InstanceGroup("m_0", InstanceKind.GPU, 1, **fields)


def test_an_instance_finds_its_group_by_its_name():
    spec = spec_of(CONFIG + 'instance_group { name: "g_1" } instance_group { name: "g_11" }')
    assert group_of(spec, Placement("g_11_0", InstanceKind.GPU)).name == "g_11"
    assert group_of(spec, Placement("other_0", InstanceKind.GPU)) is None


def test_the_profiles_of_a_group_are_numbers_of_the_engine():
    """CFG-066."""
    assert profile_numbers(None, 3) == (0,)
    assert profile_numbers(group(profiles=("2", "0", "2")), 3) == (2, 0)
    with pytest.raises(InvalidArgumentError, match="asks for profile '3', but .* profiles 0 to 2"):
        profile_numbers(group(profiles=("3",)), 3)


def test_one_dla_core_for_a_group():
    """CFG-065."""
    assert dla_core_of(group()) is None
    assert dla_core_of(group(secondary_devices=("KIND_NVDLA:1",))) == 1
    with pytest.raises(InvalidArgumentError, match="one DLA core; write one group for each"):
        dla_core_of(group(secondary_devices=("KIND_NVDLA:0", "KIND_NVDLA:1")))


def span(low, best, high) -> ShapeRange:
    return ShapeRange(tuple(low), tuple(best), tuple(high))


SMALL = Profile(0, {"X": span((1, 4), (1, 4), (8, 4))}, {})
LARGE = Profile(1, {"X": span((1, 4), (32, 4), (64, 4))}, {})


@pytest.mark.parametrize(("rows", "number"), [(1, 0), (8, 0), (9, 1), (64, 1)])
def test_the_profile_tuned_for_the_nearest_shape_is_chosen(rows, number):
    assert profiles.choose([SMALL, LARGE], {"X": (rows, 4)}, {}, "m").number == number


def test_what_no_profile_takes_is_refused_with_what_each_takes():
    with pytest.raises(InvalidArgumentError) as caught:
        profiles.choose([SMALL, LARGE], {"X": (65, 4)}, {}, "m")
    assert caught.value.message == (
        "the engine of model 'm' takes no batch of these shapes: "
        "profile 0: input 'X' has shape [65, 4], taken is [1 to 8, 4]; "
        "profile 1: input 'X' has shape [65, 4], taken is [1 to 64, 4]"
    )


CUDA = "optimization { cuda { graphs: true %s } }"


def captured(config: str, profile: Profile = SMALL) -> list[GraphSpec]:
    context = context_of(config)
    return specs_of(context.spec, context.config, profile)


def test_no_graph_is_captured_unless_asked_for():
    """CFG-082."""
    assert captured(CONFIG) == []
    assert [item.shapes["X"] for item in captured(CONFIG + CUDA % "")] == [(1, 4), (8, 4)]


def test_dimensions_that_only_the_profile_fixes_are_taken_from_it():
    config = CONFIG.replace("dims: [4]", "dims: [-1]") + CUDA % ""
    assert [item.shapes["X"] for item in captured(config)] == [(1, 4), (8, 4)]
    free = Profile(0, {"X": span((1, 1), (1, 4), (8, 9))}, {})
    assert captured(config, free) == [], "nothing says which columns"


def test_graph_specs_are_captured_where_the_profile_takes_them():
    specs = CUDA % "graph_spec { batch_size: 2 } graph_spec { batch_size: 8 }"
    narrow = Profile(0, {"X": span((1, 4), (1, 4), (4, 4))}, {})
    assert [item.shapes["X"] for item in captured(CONFIG + specs, narrow)] == [(2, 4)]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("batch_size: 9", r"graph_spec\[0\].batch_size is 9: it must be 1 to 8"),
        ('batch_size: 1 input { key: "Q" value { dim: [4] } }', "no input 'Q', only X"),
        (
            "batch_size: 1 graph_lower_bound { batch_size: 1 input { key: 'X' value { dim: 5 } } }",
            r"graph_lower_bound: 'X' is \[1, 5\], above the graph's own \[1, 4\]",
        ),
    ],
)
def test_a_graph_spec_that_fits_nothing_is_refused(spec, words):
    with pytest.raises(InvalidArgumentError, match=words):
        captured(CONFIG + CUDA % f"graph_spec {{ {spec} }}")


def test_a_graph_spec_of_a_model_without_batches_has_no_batch_size():
    """CFG-083."""
    config = CONFIG.replace("max_batch_size: 8", "").replace("dims: [4]", "dims: [2, 4]")
    assert [item.shapes["X"] for item in captured(config + CUDA % "graph_spec { }")] == [(2, 4)]
    with pytest.raises(InvalidArgumentError, match="batch_size is 1, but the model does not batch"):
        captured(config + CUDA % "graph_spec { batch_size: 1 }")


def test_a_graph_spec_must_say_what_the_config_leaves_open():
    config = CONFIG.replace("dims: [4]", "dims: [-1]") + CUDA % "graph_spec { batch_size: 1 }"
    with pytest.raises(InvalidArgumentError, match="does not say the size of input 'X'"):
        captured(config)


def test_the_graph_with_the_least_surplus_is_chosen():
    wide = GraphSpec({"X": (8, 4)}, {"X": (1, 4)})
    tight = GraphSpec({"X": (4, 4)}, {"X": (1, 4)})
    exact = GraphSpec({"X": (3, 4)}, {"X": (3, 4)})
    all_of_them = [wide, tight, exact]
    chosen = {rows: graphs.choose(all_of_them, {"X": (rows, 4)}) for rows in (2, 3, 5, 9)}
    assert chosen == {2: tight, 3: exact, 5: wide, 9: None}


ENGINE = EngineSignature(
    (EngineTensor("X", "FLOAT", (-1, 4)),),
    (EngineTensor("Y", "FLOAT", (-1, 4)),),
    (SMALL, LARGE),
)


def completed(engine: EngineSignature, text: str = 'name: "m" backend: "tensorrt"'):
    config = config_of(text)
    complete(config, engine)
    return config


def test_an_empty_config_is_filled_from_the_engine():
    """AUT-04: the batch size is the largest of the profiles, and turns dynamic batching on."""
    config = completed(ENGINE)
    assert config.max_batch_size == 64
    assert config.HasField("dynamic_batching")
    assert (config.input[0].name, list(config.input[0].dims)) == ("X", [4])
    assert config.output[0].data_type == pb.TYPE_FP32


def test_an_engine_of_fixed_shapes_gives_full_shapes_and_no_batching():
    """AUT-04."""
    fixed = EngineSignature(
        (EngineTensor("X", "HALF", (2, 4)), EngineTensor("S", "INT64", ())),
        (EngineTensor("Y", "BF16", (2, 4)),),
        (Profile(0, {"X": span((2, 4), (2, 4), (2, 4))}, {}),),
    )
    config = completed(fixed)
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [2, 4])
    assert list(config.input[1].dims) == [1]
    assert config.output[0].data_type == pb.TYPE_BF16
    assert not config.HasField("dynamic_batching")


def test_a_shape_tensor_is_completed_without_its_batch_value():
    """AUT-04, CFG-035."""
    engine = EngineSignature(
        (*ENGINE.inputs, EngineTensor("S", "INT32", (3,), is_shape_tensor=True)),
        ENGINE.outputs,
        (SMALL,),
    )
    config = completed(engine)
    assert config.input[1].is_shape_tensor
    assert list(config.input[1].dims) == [2]


def test_what_a_config_says_already_stays():
    assert completed(ENGINE, CONFIG) == config_of(CONFIG)


def refusal(config: str, engine: EngineSignature = ENGINE) -> str:
    with pytest.raises(ServingError) as caught:
        check(spec_of(config), engine)
    return caught.value.message


def test_a_config_that_fits_is_accepted():
    """TRT-05."""
    check(spec_of(CONFIG), ENGINE)
    check(spec_of(CONFIG.replace("dims: [4]", "dims: [2, 2] reshape { shape: [4] }")), ENGINE)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name: "X"', 'name: "Z"', ["unexpected inference input 'Z'", "allowed inputs are: X"]),
        ('name: "Y"', 'name: "Z"', ["unexpected inference output 'Z'", "allowed outputs are: Y"]),
        ("TYPE_FP32", "TYPE_FP16", ["is TYPE_FP32 in the engine, but data_type is TYPE_FP16"]),
        (
            "[4]",
            "[5]",
            ["has dims [4] in the engine, but [5] in the config", "max_batch_size is 8"],
        ),
        ("size: 8", "size: 65", ["max_batch_size 65, but the engine takes batches of 64 at most"]),
        ("[4] }", "[4] is_shape_tensor: true }", ["no shape tensor in the engine", "is true"]),
    ],
)
def test_a_mismatch_is_refused_with_both_values(old, new, words):
    """TRT-05: name, data type, dims, batch size."""
    message = refusal(CONFIG.replace(old, new, 1))
    assert [word for word in words if word not in message] == []


def test_an_input_that_the_config_forgets_is_named():
    """TRT-05."""
    engine = EngineSignature(
        (*ENGINE.inputs, EngineTensor("W", "FLOAT", (-1, 1))), ENGINE.outputs, ENGINE.profiles
    )
    assert "add W to `input`" in refusal(CONFIG, engine)


def test_an_engine_without_a_batch_dimension_does_not_batch():
    fixed = EngineSignature((EngineTensor("X", "FLOAT", (4,)),), ENGINE.outputs, (SMALL,))
    assert "shape [4] in the engine, without a first dimension of any size" in refusal(
        CONFIG.replace("[4]", "[]", 1).replace("dims: []", "dims: [1] reshape { }"), fixed
    )


@pytest.mark.parametrize("type_name", ["FP8", "INT4", "FP4", "E8M0"])
def test_types_that_no_request_can_carry_are_refused_by_name(type_name):
    """TRT-04: FP8 and the like are for the inside of an engine."""
    engine = EngineSignature((EngineTensor("X", type_name, (-1, 4)),), ENGINE.outputs, (SMALL,))
    assert f"'X' of model 'm' is {type_name} in the engine" in refusal(CONFIG, engine)


def test_a_vectorized_layout_of_the_engine_is_refused():
    """TRT-04: read row by row, its bytes would be garbage."""
    tensor = EngineTensor("X", "FLOAT", (-1, 4), is_linear=False)
    engine = EngineSignature((tensor,), ENGINE.outputs, (SMALL,))
    assert "'X' of model 'm' has a vectorized layout" in refusal(CONFIG, engine)
