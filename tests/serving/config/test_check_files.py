"""Config says / model says, for model files other than ONNX."""

from __future__ import annotations

import json

import pytest

from serving.config.check import check_model
from serving.config.findings import Severity, errors_of
from serving.config.repair import apply_repair
from tests.serving.config import model_bytes

XY = (
    'input { name: "x" data_type: TYPE_FP32 dims: [3] }\n'
    'output { name: "y" data_type: TYPE_FP32 dims: [2] }\n'
)


def model(tmp_path, name, content, config):
    path = tmp_path / "m" / "1" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    return tmp_path / "m"


def grave(check):
    found = [item for item in check.findings if item.severity is not Severity.NOTE]
    return [f"{item.severity.value} {item.line} {item.message}" for item in found]


def test_openvino_fills_the_config(tmp_path):
    """AUT-05."""
    check = check_model(model(tmp_path, "model.xml", model_bytes.openvino(), ""))

    assert grave(check) == []
    assert (check.effective.backend, check.effective.max_batch_size) == ("openvino", 4)
    assert check.effective.input[0].name == "x"
    assert check.origins["input"] == "model"


def test_openvino_is_compared(tmp_path):
    config = f"max_batch_size: 8\n{XY.replace('[3]', '[5]')}"

    check = check_model(model(tmp_path, "model.xml", model_bytes.openvino(), config))

    (found,) = grave(check)
    assert found.startswith("error 2 input 'x': the config says [5]")
    mended = apply_repair(config, errors_of(check.findings)[0].repair)
    assert grave(check_model(tmp_path / "m", config_text=mended)) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", []),
        ("SKIP_OV_DYNAMIC_BATCHSIZE", ["needs a first dimension of -1", "needs a first"]),
        ("RESHAPE_IO_LAYERS", []),
    ],
)
def test_a_batch_size_that_the_backend_gives_an_openvino_model_is_no_finding(tmp_path, more, words):
    """OV-01."""
    dims = "[5]" if more == "RESHAPE_IO_LAYERS" else "[3]"
    config = f"max_batch_size: 8\n{XY.replace('[3]', dims)}"
    if more:
        config += f'parameters {{ key: "{more}" value {{ string_value: "YES" }} }}\n'
    content = model_bytes.openvino(shape="1,3").replace(b"<dim>-1</dim>", b"<dim>1</dim>")

    found = grave(check_model(model(tmp_path, "model.xml", content, config)))

    assert len(found) == len(words), found
    assert all(part in text for part, text in zip(words, found, strict=True))


def test_saved_models_fill_the_config_and_are_compared(tmp_path):
    content = model_bytes.saved_model({"x": (1, [-1, 3])}, {"y": (1, [-1, 2])})
    directory = model(tmp_path, "model.savedmodel/saved_model.pb", content, "")

    check = check_model(directory)

    assert grave(check) == []
    assert check.effective.platform == "tensorflow_savedmodel"
    assert list(check.effective.output[0].dims) == [2]
    wrong = check_model(directory, config_text=f"max_batch_size: 2\n{XY.replace('FP32', 'INT8')}")
    assert [item.field for item in errors_of(wrong.findings)] == [
        "input[0].data_type",
        "output[0].data_type",
    ]


def test_the_signature_of_a_saved_model_can_be_chosen(tmp_path):
    content = model_bytes.saved_model({"x": (1, [3])}, {"y": (1, [2])}, "other")
    config = 'parameters { key: "TF_SIGNATURE_DEF" value { string_value: "other" } }'

    check = check_model(model(tmp_path, "model.savedmodel/saved_model.pb", content, config))

    assert grave(check) == []
    assert check.signature is not None


TORCH = 'backend: "pytorch" platform: "pytorch_libtorch"\n'


@pytest.mark.parametrize(
    ("arguments", "result", "config", "expected"),
    [
        ("x: Tensor", "Tensor", XY, []),
        ("x: Tensor", "Tensor", XY.replace('"x"', '"INPUT__0"').replace('"y"', '"OUT__0"'), []),
        ("a: Tensor", "Tensor", XY, []),
        ("x: Tensor; m: Optional[Tensor]", "Tensor", XY, []),
        ("d: Dict[str, Tensor]", "Tensor", XY, []),
        (
            "x: Tensor; m: Tensor",
            "Tensor",
            XY,
            ["error 2 1/model.pt: forward(x: Tensor, m: Tensor) needs 'm', and the config"],
        ),
        (
            "a: Tensor; b: Tensor",
            "Tensor",
            XY,
            ["error 2 1/model.pt: forward(a: Tensor, b: Tensor) needs 2 arguments"],
        ),
        (
            "a: Tensor",
            "Tensor",
            XY.replace('"x"', '"INPUT__1"'),
            ["error 2 input 'INPUT__1' is number 1"],
        ),
        (
            "x: Tensor",
            "Tensor",
            XY.replace('"y"', '"OUTPUT__1"'),
            ["warning 3 output 'OUTPUT__1' is number 1, but 1/model.pt: forward returns Tensor"],
        ),
        (
            "x: Tensor; n: int",
            "Tensor",
            XY,
            [
                "error 2 1/model.pt: argument 'n' of forward is int",
                "error 2 1/model.pt: forward(x: Tensor, n: int) needs 'n'",
            ],
        ),
        (
            "d: Dict[str, Tensor]; x: Tensor",
            "Tensor",
            XY,
            ["error 2 1/model.pt: forward(d: Dict[str, Tensor], x: Tensor) takes a dictionary"],
        ),
        ("x: Tensor", "List[Tensor]", XY, ["warning 3 1/model.pt: forward returns List[Tensor]"]),
    ],
)
def test_torchscript_is_compared(tmp_path, arguments, result, config, expected):
    content = model_bytes.torchscript(arguments, result)

    found = grave(check_model(model(tmp_path, "model.pt", content, TORCH + config)))

    assert len(found) == len(expected), found
    assert all(a.startswith(b) for a, b in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(
    ("runtime", "name", "value", "expected"),
    [
        ("", "INFERENCE_MODE", "1", ""),
        ("", "INFERENCE_MODE", "maybe", "error: parameter 'INFERENCE_MODE' is 'maybe'"),
        ("", "INFERNCE_MODE", "true", "warning: the pytorch backend does not know the parameter"),
        ("", "site", "berlin", ""),
        ("model.py", "NUM_THREADS", "0", "error: parameter 'NUM_THREADS' is '0'"),
    ],
)
def test_parameters_of_torch_are_checked(tmp_path, runtime, name, value, expected):
    """PT-15, PT-25."""
    parameter = f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'
    config = f'{TORCH}{XY}runtime: "{runtime}"\n{parameter}'

    check = check_model(model(tmp_path, "model.pt", model_bytes.torchscript(), config))

    told = [f"{item.severity.value}: {item.message}" for item in check.findings]
    found = [text for text in told if "parameter '" in text]
    assert len(found) == bool(expected), told
    assert all(text.startswith(expected) for text in found)


def test_a_broken_torchscript_file_is_an_error(tmp_path):
    (found,) = grave(check_model(model(tmp_path, "model.pt", b"<html>", TORCH + XY)))

    assert found == "error 0 '1/model.pt' is not a TorchScript module: it is no zip archive"


def test_the_python_runtime_of_pytorch_takes_a_state_dict(tmp_path):
    """PT-24."""
    weights = model_bytes.zipped({"a/data.pkl": b"\x80\x02}."})
    config = f'{TORCH}runtime: "model.py"\n{XY}'

    assert grave(check_model(model(tmp_path, "model.pt", weights, config))) == []


PT2 = 'backend: "pytorch" platform: "torch_aoti"\n'
IO2 = (
    'input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [4] },\n'
    '{ name: "INPUT__1" data_type: TYPE_BOOL dims: [1] reshape { } } ]\n'
    'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [4] }\n'
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (IO2, []),
        (
            IO2.replace("INPUT__0", "ARGS[0]")
            .replace("INPUT__1", "KWARGS[mask]")
            .replace("OUTPUT__0", "RESULT"),
            [],
        ),
        (
            IO2.replace("BOOL", "INT32"),
            ["error 4 input 'INPUT__1': the config says TYPE_INT32, 1/model.pt2 says TYPE_BOOL"],
        ),
        (
            IO2.replace("OUTPUT__0", "OUTPUT__7"),
            ["error 5 unexpected inference output 'OUTPUT__7'"],
        ),
    ],
)
def test_exported_programs_are_compared_by_position(tmp_path, config, expected):
    """PT-09, PT-10."""
    content = model_bytes.exported_program([{"as_expr": {}}, {"as_int": 4}])
    text = f"{PT2}max_batch_size: 8\n{config}"

    check = check_model(model(tmp_path, "model.pt2", content, text))

    found = grave(check)
    assert len(found) == len(expected), found
    assert all(a.startswith(b) for a, b in zip(found, expected, strict=True)), found


def fil(model_type, dims="[7]", out="[1]", more=""):
    return (
        f'backend: "fil"\nmax_batch_size: 64\n'
        f'input {{ name: "input__0" data_type: TYPE_FP32 dims: {dims} }}\n'
        f'output {{ name: "output__0" data_type: TYPE_FP32 dims: {out} }}\n'
        f'parameters {{ key: "model_type" value {{ string_value: "{model_type}" }} }}\n{more}'
    )


PROBABILITIES = 'parameters { key: "predict_proba" value { string_value: "true" } }\n'


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("xgboost.json", fil("xgboost_json"), []),
        ("xgboost.json", fil("xgboost_json", out="[3]", more=PROBABILITIES), []),
        (
            "xgboost.json",
            fil("xgboost_json", "[8]"),
            ["error 3 input 'input__0': the config says [8], 1/xgboost.json was trained on 7"],
        ),
        (
            "xgboost.json",
            fil("xgboost_json", out="[2]", more=PROBABILITIES),
            ["error 4 output 'output__0': the config says [2], 1/xgboost.json tells 3 classes"],
        ),
        ("other.json", fil("xgboost_json"), ["error 0 version 1 has no 'xgboost.json'"]),
        ("xgboost.json", fil("cat"), ["error 5 parameter 'model_type' is 'cat': it must be one"]),
        (
            "xgboost.json",
            fil("xgboost_json", more=PROBABILITIES.replace("true", "yes")),
            ["error 5 parameter 'predict_proba' is 'yes': it must be true or false"],
        ),
        (
            "xgboost.json",
            fil("xgboost_json")
            + 'output { name: "treeshap_output" data_type: TYPE_FP32 dims: [8] }',
            ["error 6 output 'treeshap_output': the config says [8], 1/xgboost.json tells what"],
        ),
        (
            "xgboost.json",
            fil("xgboost_json").replace("input__0", "x"),
            ["error 3 models of the fil backend have one input, 'input__0'"],
        ),
    ],
)
def test_trees_are_compared(tmp_path, name, config, expected):
    content = json.dumps(model_bytes.xgboost(7, 3))

    found = grave(check_model(model(tmp_path, name, content, config)))

    assert len(found) == len(expected), found
    assert all(a.startswith(b) for a, b in zip(found, expected, strict=True)), found


def test_a_draft_says_that_it_is_one(tmp_path):
    """AUT-07: types and shapes are guesses, and a saved draft has no finding any more."""
    directory = model(tmp_path, "model.pt", model_bytes.torchscript(), TORCH)

    draft = next(item for item in check_model(directory).findings if item.repair is not None)

    assert "data_type and dims are guesses" in apply_repair(TORCH, draft.repair)


@pytest.mark.parametrize("config", ["", fil("lightgbm")])
def test_a_tree_model_of_another_type_is_told_and_mended(tmp_path, config):
    """FIL-01."""
    config = config or 'backend: "fil"\n'
    content = json.dumps(model_bytes.xgboost(7, 3))

    check = check_model(model(tmp_path, "xgboost.json", content, config))

    told = [item for item in check.findings if "is a model of type xgboost_json" in item.message]
    mended = apply_repair(config, told[0].repair)
    assert grave(check_model(tmp_path / "m", config_text=mended)) == []


def test_a_tree_model_fills_the_config_and_parameters_without_effect_are_noted(tmp_path):
    """FIL-02, FIL-03, AUT-05."""
    content = json.dumps(model_bytes.xgboost(7, 3))
    given = 'parameters { key: "model_type" value { string_value: "xgboost_json" } }\n'
    algo = 'parameters { key: "algo" value { string_value: "NAIVE" } }\n'
    config = f'backend: "fil"\n{given}{PROBABILITIES}{algo}'

    check = check_model(model(tmp_path, "xgboost.json", content, config))

    assert grave(check) == []
    assert (list(check.effective.input[0].dims), list(check.effective.output[0].dims)) == ([7], [3])
    assert check.origins["output"] == "model"
    notes = [f"{item.line} {item.message}" for item in check.findings]
    assert "4 'algo' has no effect: it chooses among GPU kernels" in notes


@pytest.mark.parametrize(
    ("name", "content", "config", "words"),
    [
        (
            "model.pt",
            model_bytes.torchscript("x: Tensor", "Tuple[Tensor, Tensor]"),
            TORCH + XY,
            "1/model.pt says: forward(x: Tensor) -> Tuple[Tensor, Tensor]",
        ),
        (
            "model.txt",
            model_bytes.lightgbm(7),
            fil("lightgbm"),
            "1/model.txt says: 7 features, one score, objective multiclass",
        ),
    ],
)
def test_what_the_file_tells_is_shown(tmp_path, name, content, config, words):
    check = check_model(model(tmp_path, name, content, config))

    assert words in [item.message for item in check.findings if item.severity is Severity.NOTE]
