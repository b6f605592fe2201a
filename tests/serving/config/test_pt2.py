"""PT2 archives: names by call specification, what an archive tells, the config beside it."""

from __future__ import annotations

import json

import pytest

from serving.config.check import check_model
from serving.config.findings import Severity, errors_of
from serving.config.protobuf import pb
from serving.config.signature_pt2 import CompiledInput, CompiledProgram, read_pt2_signature
from serving.config.torch_call_spec import parse_call_spec, position, positions, unknown_name
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError
from tests.serving.config.model_bytes import (
    LEAF,
    LEAF_SPEC,
    compiled_program,
    exported_program,
    treespec,
    zipped,
)
from tests.serving.config.pt2_recordings import (
    SEED_INPUTS,
    SEED_OUTPUTS,
    archive,
    recorded,
    source,
)

PT2 = 'backend: "pytorch" platform: "torch_aoti"\n'


def put(tmp_path, content):
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    return path


def checked(tmp_path, content, config=""):
    (tmp_path / "model" / "1").mkdir(parents=True)
    (tmp_path / "model" / "1" / "model.pt2").write_bytes(content)
    (tmp_path / "model" / "config.pbtxt").write_text(PT2 + config)
    return check_model(tmp_path / "model")


def tensors(kind, *pairs, dims="[4]"):
    return "".join(
        f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} }}\n'
        for name, datatype in pairs
    )


# -- names


def test_the_example_has_six_inputs_and_eight_outputs_by_both_conventions():
    """PT-09, PT-10: the example of Triton's documentation, recorded from its archive."""
    call = parse_call_spec(*recorded("seed")["call_spec"])

    assert call.inputs == SEED_INPUTS
    assert call.outputs == SEED_OUTPUTS
    for index, name in enumerate(SEED_OUTPUTS):
        assert position(name, call.outputs) == position(f"OUTPUT__{index}", call.outputs) == index
    for index, name in enumerate(SEED_INPUTS):
        assert position(name, call.inputs) == position(f"INPUT__{index}", call.inputs) == index


def test_tensors_are_counted_depth_first_arguments_before_keywords_dictionaries_as_built():
    """PT-11: lists count as tuples; the key "z" was written before "a"."""
    call = parse_call_spec(*recorded("many")["call_spec"])

    assert call.inputs == ("ARGS[0]", "ARGS[1][0]", "ARGS[1][1]", "KWARGS[opts][k][0]")
    assert call.outputs == ("RESULT[0]", "RESULT[1]", "RESULT[2][z]", "RESULT[2][a]")
    assert call.nested == (*call.inputs[1:], *call.outputs[2:])


def test_a_single_tensor_is_plain_result():
    """PT-10."""
    assert parse_call_spec(*recorded("single")["call_spec"]).outputs == ("RESULT",)


@pytest.mark.parametrize("name", ["plain", "single"])
def test_arguments_and_results_that_are_tensors_are_not_nested(name):
    assert parse_call_spec(*recorded(name)["call_spec"]).nested == ()


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ([[{"a,b": LEAF}], {}], "ARGS\\[0\\] has the key 'a,b'"),
        ([[{"a[0]": LEAF}], {}], "keys must not hold"),
        ([[{"a b": LEAF}], {}], "blanks"),
        ([[{"a\x07": LEAF}], {}], "cannot be printed"),
        ([[{"": LEAF}], {}], "keys must be texts"),
        ([[LEAF]], "not a pair"),
    ],
)
def test_keys_that_would_make_names_ambiguous_are_refused(structure, words):
    """PT-10."""
    with pytest.raises(ValueError, match=words):
        parse_call_spec(treespec(structure), LEAF_SPEC)


def _odd(kind, context="null"):
    leaf = {"type": None, "context": None, "children_spec": []}
    return json.dumps([1, {"type": kind, "context": context, "children_spec": [leaf]}])


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (_odd("collections.namedtuple"), "RESULT is a collections.namedtuple: use tensors"),
        (_odd("builtins.dict", "[1]"), "keys must be texts"),
        (_odd("builtins.dict", "[]"), "cannot be read"),
        (_odd("builtins.dict", "{"), "cannot be read"),
        (treespec([]), "returns no tensor"),
        ("[2, {}]", "unknown form"),
        ("", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_tree_of_tensors_is_refused(outputs, words):
    """PT-10: containers are dict, tuple and list."""
    with pytest.raises(ValueError, match=words):
        parse_call_spec(treespec([[LEAF], {}]), outputs)


@pytest.mark.parametrize(("depth", "key"), [(100, "k"), (10, "k" * 200)])
def test_a_structure_without_an_end_is_refused(depth, key):
    structure = LEAF
    for _ in range(depth):
        structure = {key: structure}
    with pytest.raises(ValueError, match="more than 64 deep, or has long keys"):
        parse_call_spec(treespec([[structure], {}]), LEAF_SPEC)


@pytest.mark.parametrize(
    ("before", "after"),
    [("_size[1])", "_size[999999999])"), ("(4 != ", f"({'9' * 5000} != ")],
)
def test_source_code_that_is_made_up_is_refused(tmp_path, before, after):
    """No archive can make its reader take much memory."""
    text = source("plain").replace(before, after)
    assert text != source("plain")

    with pytest.raises(InvalidArgumentError, match="cannot be served"):
        read_pt2_signature(put(tmp_path, compiled_program("plain", text, {})))


def test_a_name_that_is_none_is_refused_with_those_that_there_are():
    """PT-09, PT-10."""
    with pytest.raises(InvalidArgumentError) as refused:
        positions("input", ["ARGS[0]", "KWARG[kwarg1]"], SEED_INPUTS)

    assert refused.value.message.startswith(
        "input 'KWARG[kwarg1]' names none of its tensors (did you mean 'KWARGS[kwarg1]'?); the 6 "
        "inputs are INPUT__0 or ARGS[0], INPUT__1 or ARGS[1], "
    )
    assert unknown_name("output", "OUTPUT__8", SEED_OUTPUTS).startswith(
        "output 'OUTPUT__8' is number 8, counted from 0; the 8 outputs are OUTPUT__0 or"
    )


def test_both_conventions_may_be_mixed():
    named = positions("input", ["INPUT__1", "ARGS[0]"], ("ARGS[0]", "ARGS[1]"))

    assert named == {"INPUT__1": 1, "ARGS[0]": 0}


# -- what an archive tells


@pytest.mark.parametrize("name", ["seed", "plain", "single", "many"])
def test_the_source_code_tells_what_the_loader_tells(tmp_path, name):
    """PT-09: names can be checked before the code is loaded."""
    program = read_pt2_signature(put(tmp_path, archive(name)))

    assert isinstance(program, CompiledProgram)
    assert program.call_spec == parse_call_spec(*recorded(name)["call_spec"])
    assert program.metadata["AOTI_DEVICE_KEY"] == "cpu"
    assert program.inputs is not None
    assert len(program.inputs) == len(program.call_spec.inputs)


def test_compiled_code_tells_types_and_sizes_of_its_inputs(tmp_path):
    plain = read_pt2_signature(put(tmp_path, archive("plain")))
    assert [item.described for item in plain.inputs] == [
        "TYPE_FP32 [-1, 4]",
        "TYPE_FP32 [-1, 2]",
    ]
    assert all(item.is_row_major for item in plain.inputs)
    # Exports write 2 as the least size of whatever may vary; one row is served all the same.
    assert plain.inputs[0].refusal((1, 4)) == ""
    seed = read_pt2_signature(put(tmp_path, archive("seed")))
    assert {item.described for item in seed.inputs} == {"TYPE_FP16 [1, 16]"}


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((4, 8), ""),
        ((3, 8), "dimension 0 must be 4 to 16"),
        ((17, 8), "dimension 0 must be 4 to 16"),
        ((4, 9), "dimension 1 must be 8"),
        ((4,), "it takes 2 dimensions"),
    ],
)
def test_sizes_that_the_code_was_not_compiled_for_are_told(shape, words):
    """PT-12: compiled code does not look, and would read past the end of a smaller tensor."""
    compiled = CompiledInput(BY_NAME["FP32"], (4, 8), (16, 8), (8, 1))

    assert compiled.refusal(shape) == words


@pytest.mark.parametrize(
    ("strides", "is_row_major"),
    [((8, 1), True), ((None, 1), True), ((1, 4), False), ((8, 2), False)],
)
def test_an_order_in_memory_other_than_by_rows_is_noticed(strides, is_row_major):
    compiled = CompiledInput(BY_NAME["FP32"], (0, 8), (None, 8), strides)

    assert compiled.is_row_major is is_row_major


@pytest.mark.parametrize(
    ("kernel", "ends"),
    [
        ('#pragma omp parallel\nAOTI_TORCH_CHECK(ok, "index out of bounds: 0 <= tmp2");', True),
        ('AOTI_TORCH_CHECK(ok, "index out of bounds: 0 <= tmp2");', False),
        ("#pragma omp parallel\n", False),
    ],
)
def test_code_that_checks_indices_in_parallel_may_end_its_process(tmp_path, kernel, ends):
    """No exception may leave a region of OpenMP."""
    folder = "n/data/aotinductor/model"
    content = zipped({f"{folder}/a.wrapper.so": b"", f"{folder}/a.kernel.cpp": kernel})

    program = read_pt2_signature(put(tmp_path, content))

    assert program.ends_process is ends


def test_code_without_its_source_tells_metadata_only(tmp_path):
    content = zipped(
        {
            "n/data/aotinductor/model/a.wrapper.so": b"",
            "n/data/aotinductor/model/a.wrapper_metadata.json": '{"AOTI_DEVICE_KEY": "cuda"}',
        }
    )

    program = read_pt2_signature(put(tmp_path, content))

    assert program == CompiledProgram("model", {"AOTI_DEVICE_KEY": "cuda"})


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"n/data/aotinductor/model/a.cpp": ""}, "holds no compiled library"),
        (
            {"n/data/aotinductor/a/x.so": b"", "n/data/aotinductor/b/x.so": b""},
            "holds the models a, b, and none is named 'model'",
        ),
        ({"n/models/a.json": "{}", "n/models/b.json": "{}"}, "holds 2 programs"),
    ],
)
def test_an_archive_that_cannot_be_served_is_refused(tmp_path, members, words):
    with pytest.raises(InvalidArgumentError, match=words):
        read_pt2_signature(put(tmp_path, zipped(members)))


def test_an_argument_that_is_no_tensor_is_refused(tmp_path):
    """PT-10: every leaf must be a tensor."""
    text = source("plain").replace("    inputs_info_[1].name", "    //")

    with pytest.raises(InvalidArgumentError, match="takes 2 values, 1 of them tensors"):
        read_pt2_signature(put(tmp_path, compiled_program("plain", text, {})))


# -- the config beside it


def test_a_config_that_fits_a_compiled_archive_has_no_errors(tmp_path):
    config = tensors("input", *((name, "FP16") for name in SEED_INPUTS), dims="[1, 16]")
    config += tensors("output", *((name, "FP16") for name in SEED_OUTPUTS), dims="[1, 16]")

    check = checked(tmp_path, archive("seed"), config)

    assert errors_of(check.findings) == []
    notes = [item.message for item in check.findings if item.severity is Severity.NOTE]
    assert any("compiled for cpu, AVX512 AVX512_VNNI" in note for note in notes)


XY = [("INPUT__0", "FP32"), ("INPUT__1", "FP32")]
OUT = [("OUTPUT__0", "FP32")]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (tensors("input", *XY[:1]) + tensors("output", *OUT), "needs input 'INPUT__1'"),
        (
            tensors("input", *XY, ("INPUT__2", "FP32")) + tensors("output", *OUT),
            "input 'INPUT__2' is number 2",
        ),
        (
            tensors("input", *XY) + tensors("output", ("RESULT", "FP32")),
            "output 'RESULT' names none of its tensors",
        ),
        (
            tensors("input", XY[0], ("INPUT__1", "INT32")) + tensors("output", *OUT),
            "input 'INPUT__1': the config says TYPE_INT32",
        ),
        (
            tensors("input", *XY, dims="[7]") + tensors("output", *OUT),
            "the config says dims [7], that is [-1, 7] with the batch axis",
        ),
        (
            tensors("input", *XY) + tensors("output", ("OUTPUT__0", "STRING")),
            "output 'OUTPUT__0' is TYPE_STRING",
        ),
    ],
)
def test_a_config_that_does_not_fit_is_told_where(tmp_path, config, words):
    """PT-09, PT-10, PT-14."""
    check = checked(tmp_path, archive("plain"), "max_batch_size: 8\n" + config)

    assert any(words in item.message for item in errors_of(check.findings)), check.findings


def test_batching_with_nested_tensors_is_refused(tmp_path):
    """PT-12, PT-14."""
    config = "max_batch_size: 4\n" + tensors("input", *((name, "FP16") for name in SEED_INPUTS))

    found = [
        item.message for item in errors_of(checked(tmp_path, archive("seed"), config).findings)
    ]

    assert (
        "1/model.pt2: 'ARGS[2][keyA]' lies in a nested structure, and batching is for plain "
        "tensors only" in found
    )


@pytest.mark.parametrize(
    ("content", "more"),
    [
        (archive("single"), ""),
        (
            exported_program([{"as_int": 2}, {"as_int": 4}]),
            tensors("input", ("INPUT__1", "BOOL"), dims="[1] reshape { }"),
        ),
    ],
    ids=["compiled", "exported"],
)
def test_a_batch_size_that_an_archive_is_tied_to_is_a_warning(tmp_path, content, more):
    """PT-12: requests of that size are served."""
    config = tensors("input", ("INPUT__0", "FP32")) + more + tensors("output", ("RESULT", "FP32"))

    check = checked(tmp_path, content, "max_batch_size: 8\n" + config)

    assert errors_of(check.findings) == []
    warnings = [item.message for item in check.findings if item.severity is Severity.WARNING]
    assert warnings == [
        "1/model.pt2 was exported for batches of exactly 2: it refuses every other size"
    ]


def test_a_compiled_archive_does_not_fill_a_config(tmp_path):
    """AUT-07, PT-14: it does not tell the types of its outputs."""
    check = checked(tmp_path, archive("plain"))

    assert {item.code for item in errors_of(check.findings)} >= {"AUT-07"}
    assert not check.effective.input


def test_an_exported_program_fills_a_config_with_ordinal_names(tmp_path):
    """PT-09: it tells everything, so nothing has to be written down."""
    check = checked(tmp_path, exported_program([{"as_expr": {}}, {"as_int": 4}]))

    assert errors_of(check.findings) == []
    assert check.effective.max_batch_size == 4
    assert [item.name for item in check.effective.input] == ["INPUT__0", "INPUT__1"]
    assert [item.data_type for item in check.effective.input] == [pb.TYPE_FP32, pb.TYPE_BOOL]
    assert [item.name for item in check.effective.output] == ["OUTPUT__0"]
