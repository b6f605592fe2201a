"""The fil backend on recorded models of XGBoost, LightGBM and scikit-learn."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest

from serving.backends.fil import FilBackend
from serving.errors import ErrorCode, ServingError, UnsupportedError
from tests.serving.backends import tree_models
from tests.serving.backends.contract import BackendContract, Subject
from tests.serving.backends.tree_models import TOLERANCE, config, copy, parameter, recorded
from tests.serving.loading import context_of, infer, load, outputs_of, request_of

# name, file, model_type, type of the tensors
MODELS = [
    ("xgboost_binary", "xgboost.json", "xgboost_json", "FP32"),
    ("xgboost_binary", "xgboost.ubj", "xgboost_ubj", "FP32"),
    ("xgboost_binary", "checkpoint.tl", "treelite_checkpoint", "FP32"),
    ("xgboost_legacy", "xgboost.model", "xgboost", "FP32"),
    ("xgboost_three", "xgboost.json", "xgboost_json", "FP32"),
    ("xgboost_regression", "xgboost.ubj", "xgboost_ubj", "FP32"),
    ("xgboost_categories", "xgboost.json", "xgboost_json", "FP32"),
    ("xgboost_two_targets", "xgboost.json", "xgboost_json", "FP32"),
    ("lightgbm_binary", "model.txt", "lightgbm", "FP64"),
    ("lightgbm_three", "model.txt", "lightgbm", "FP64"),
    ("sklearn_binary", "checkpoint.tl", "treelite_checkpoint", "FP64"),
    ("sklearn_three", "checkpoint.tl", "treelite_checkpoint", "FP64"),
    ("sklearn_boosted", "checkpoint.tl", "treelite_checkpoint", "FP64"),
    ("sklearn_regression", "checkpoint.tl", "treelite_checkpoint", "FP64"),
    ("sklearn_anomalies", "checkpoint.tl", "treelite_checkpoint", "FP64"),
]


async def answered(tmp_path, name, file, text, rows=None):
    """What a loaded model says to the recorded rows."""
    copy(name, file, tmp_path / "1")
    model = await load(text, tmp_path)
    x = recorded(name)[0] if rows is None else rows
    kind = np.float64 if "TYPE_FP64" in text else np.float32
    outputs = await outputs_of(model, {"input__0": x.astype(kind)})
    await model.drain_and_close()
    return outputs["output__0"]


async def refused(tmp_path, text):
    with pytest.raises(ServingError) as caught:
        await load(text, tmp_path)
    return caught.value.message


@pytest.mark.parametrize(("name", "file", "model_type", "kind"), MODELS)
async def test_every_kind_of_model_predicts_what_its_own_library_does(
    tmp_path, name, file, model_type, kind
):
    """FIL-01: also missing values and categories; LightGBM's thresholds need float64."""
    scores = recorded(name)[1]
    both = scores.shape[1] == 1 and name in ("xgboost_binary", "xgboost_legacy", "lightgbm_binary")
    wanted = np.hstack([1 - scores, scores]) if both else scores
    text = config(model_type, f"{wanted.shape[1]}", kind, predict_proba="true")

    answer = await answered(tmp_path, name, file, text)

    rtol = TOLERANCE if kind == "FP32" else 1e-7
    np.testing.assert_allclose(answer, wanted if wanted.shape[1] > 1 else wanted[:, 0], rtol=rtol)


@pytest.mark.parametrize(
    ("name", "file", "model_type", "parameters", "wanted"),
    [
        ("xgboost_binary", "xgboost.json", "xgboost_json", {}, lambda p: p[:, 0] > 0.5),
        (
            "xgboost_binary",
            "xgboost.json",
            "xgboost_json",
            {"output_class": "true", "threshold": "0.3"},
            lambda p: p[:, 0] > 0.3,
        ),
        (
            "xgboost_binary",
            "xgboost.json",
            "xgboost_json",
            {"output_class": "false"},
            lambda p: p[:, 0],
        ),
        ("xgboost_three", "xgboost.json", "xgboost_json", {}, lambda p: np.argmax(p, axis=1)),
        (
            "xgboost_three",
            "xgboost.json",
            "xgboost_json",
            {"is_classifier": "false"},
            lambda p: p,
        ),
        (
            "sklearn_binary",
            "checkpoint.tl",
            "treelite_checkpoint",
            {"output_class": "true"},
            lambda p: np.argmax(p, axis=1),
        ),
        (
            "xgboost_regression",
            "xgboost.ubj",
            "xgboost_ubj",
            {"predict_proba": "true"},
            lambda p: p[:, 0],
        ),
    ],
)
async def test_parameters_choose_labels_scores_or_probabilities(
    tmp_path, name, file, model_type, parameters, wanted
):
    """FIL-02, FIL-03: one float for each row is a flat tensor, as FIL's."""
    expected = wanted(recorded(name)[1])
    width = expected.shape[1] if expected.ndim == 2 else 1

    answer = await answered(tmp_path, name, file, config(model_type, f"{width}", **parameters))

    assert answer.dtype == np.float32
    assert answer.shape == expected.shape
    np.testing.assert_allclose(answer, expected.astype(np.float32), rtol=TOLERANCE)


async def test_a_reshape_gives_callers_a_column(tmp_path):
    """FIL-03."""
    text = config("xgboost_json", output_class="false").replace(
        "dims: [1]", "dims: [1] reshape { shape: [] }"
    )

    answer = await answered(tmp_path, "xgboost_binary", "xgboost.json", text)

    assert answer.shape == (12, 1)


async def test_a_model_without_batching_takes_rows_or_one_row(tmp_path):
    scores = recorded("xgboost_three")[1]
    text = config("xgboost_json", "-1, 3", features="-1, 5", predict_proba="true")
    text = text.replace("max_batch_size: 64", "max_batch_size: 0")
    table = await answered(tmp_path, "xgboost_three", "xgboost.json", text)
    text = config("xgboost_json", "3", predict_proba="true").replace("size: 64", "size: 0")
    row = await answered(
        tmp_path, "xgboost_three", "xgboost.json", text, recorded("xgboost_three")[0][0]
    )

    np.testing.assert_allclose(table, scores, rtol=TOLERANCE)
    np.testing.assert_allclose(row, scores[0], rtol=TOLERANCE)


async def test_no_rows_at_all_are_the_callers_mistake(tmp_path):
    copy("xgboost_three", "xgboost.json", tmp_path / "1")
    text = config("xgboost_json", "-1, 3", features="-1, 5", predict_proba="true")
    model = await load(text.replace("max_batch_size: 64", "max_batch_size: 0"), tmp_path)

    error = (await infer(model, request_of({"input__0": np.empty((0, 5), np.float32)}))).error

    assert error.code is ErrorCode.INVALID_ARG
    assert "has no rows: send one at least" in error.message
    await model.drain_and_close()


async def test_unaligned_request_bytes_are_served(tmp_path):
    copy("xgboost_three", "xgboost.json", tmp_path / "1")
    model = await load(config("xgboost_json"), tmp_path)
    x, scores = recorded("xgboost_three")
    body = b"x" + x.astype(np.float32).tobytes()
    sent = np.frombuffer(memoryview(body)[1:], np.float32).reshape(x.shape)

    outputs = await outputs_of(model, {"input__0": sent})

    assert outputs["output__0"].tolist() == np.argmax(scores, axis=1).tolist()
    await model.drain_and_close()


async def test_requests_in_one_batch_each_get_their_own_rows(tmp_path):
    copy("xgboost_three", "xgboost.json", tmp_path / "1")
    model = await load(config("xgboost_json") + "dynamic_batching {}", tmp_path)
    x, scores = recorded("xgboost_three")

    answers = await asyncio.gather(
        *(outputs_of(model, {"input__0": row[None].astype(np.float32)}) for row in x)
    )

    assert [item["output__0"].tolist() for item in answers] == [
        [label] for label in np.argmax(scores, axis=1)
    ]
    assert model.stats.snapshot().execution_count < len(x)
    await model.drain_and_close()


@pytest.mark.parametrize("count", ["", "0", "-1", "1", "2"])
async def test_the_number_of_threads_changes_no_answer(tmp_path, count):
    x, scores = recorded("xgboost_three")
    options = {"nthread": count} if count else {}
    text = config("xgboost_json", "3", predict_proba="true", **options)
    text = text.replace("max_batch_size: 64", "max_batch_size: 4096")

    answer = await answered(tmp_path, "xgboost_three", "xgboost.json", text, np.tile(x, (200, 1)))

    np.testing.assert_allclose(answer, np.tile(scores, (200, 1)), rtol=TOLERANCE)


async def test_parameters_of_the_gpu_are_taken_without_effect_and_said_so(tmp_path, caplog):
    """FIL-02."""
    names = ["storage_type", "algo", "blocks_per_sm", "threads_per_tree", "chunk_size"]
    names += ["use_experimental_optimizations", "transfer_threshold"]
    text = config("xgboost_json", **dict.fromkeys(names, "1"))

    with caplog.at_level(logging.INFO, "serving.backends.fil"):
        await answered(tmp_path, "xgboost_binary", "xgboost.json", text)

    assert all(f"parameter={name}:" in caplog.text for name in names)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (config("catboost"), "'model_type' is 'catboost': it must be one of xgboost, xgboost_json"),
        (config("xgboost_json", threshold="high"), "'threshold' is 'high': it must be a number"),
        (config("xgboost_json", predict_proba="yes"), "'predict_proba' is 'yes'"),
        (config("xgboost_json", nthread="-2"), "'nthread' is '-2'"),
        (
            config("xgboost_json", output_class="true", is_classifier="false"),
            "contradict each other",
        ),
        (config("xgboost_json", features="6"), "trained on 5 features: write dims: [5]"),
        (config("xgboost_json", features="2, 5"), "has dims [2, 5] in the config"),
        (config("xgboost_json", "2"), "gives the number of a class: write dims: [1]"),
        (
            config("xgboost_json", "2", predict_proba="1"),
            "gives the probabilities of 3 classes: write dims: [3]",
        ),
        (config("xgboost_json", "1", predict_proba="1"), "write dims: [3]"),
        (config("xgboost_json", kind="INT32"), "trees take and give TYPE_FP32 or TYPE_FP64"),
        (
            config("xgboost_json").replace("output__0", "treeshap_output"),
            "and one output 'output__0', besides 'treeshap_output' where that is wanted",
        ),
        (
            config("xgboost_json").replace("input__0", "X"),
            "have one input 'input__0' and one output 'output__0'",
        ),
        (
            config("lightgbm"),
            "unable to find '1/model.txt' for model 'm': xgboost.json is there, set the parameter "
            "model_type to xgboost_json",
        ),
        (
            config("lightgbm") + 'default_model_filename: "trees.txt"',
            "unable to find '1/trees.txt'",
        ),
    ],
)
async def test_a_config_that_does_not_fit_is_refused_with_a_way_out(tmp_path, text, words):
    copy("xgboost_three", "xgboost.json", tmp_path / "1")

    assert words in await refused(tmp_path, text)


async def test_classes_of_several_targets_are_refused(tmp_path):
    copy("xgboost_two_targets", "xgboost.json", tmp_path / "1")

    message = await refused(tmp_path, config("xgboost_json", output_class="true"))

    assert "predicts 2 targets" in message


@pytest.mark.parametrize(
    ("model_type", "file", "source", "words"),
    [
        ("xgboost", "xgboost.model", "xgboost_binary/xgboost.ubj", "it is one of xgboost_ubj"),
        ("xgboost", "xgboost.model", "xgboost_binary/xgboost.json", "it is one of xgboost_json"),
        ("xgboost", "xgboost.model", "lightgbm_three/model.txt", "damaged, or of another type"),
        ("xgboost_json", "xgboost.json", "xgboost_binary/xgboost.ubj", "it is one of xgboost_ubj"),
        ("xgboost_ubj", "xgboost.ubj", "xgboost_binary/xgboost.json", "it is one of xgboost_json"),
        ("lightgbm", "model.txt", "xgboost_binary/xgboost.json", "need max_feature_idx"),
        ("treelite_checkpoint", "checkpoint.tl", "xgboost_binary/xgboost.json", "Treelite version"),
    ],
)
async def test_a_file_of_another_kind_is_refused_in_one_sentence(
    tmp_path, capfd, model_type, file, source, words
):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / file).write_bytes((tree_models.FOLDER / source).read_bytes())

    message = await refused(tmp_path, config(model_type))

    assert f": 1/{file} is no model of type {model_type}: " in message
    assert words in message
    assert "\n" not in message
    assert "/src/" not in message
    assert capfd.readouterr() == ("", "")


async def test_rows_of_another_width_are_the_callers_mistake(tmp_path):
    """The width is free in the config, but not for the trees."""
    copy("xgboost_three", "xgboost.json", tmp_path / "1")
    model = await load(config("xgboost_json", features="-1"), tmp_path)

    for width in (4, 6):
        answer = await infer(model, request_of({"input__0": np.zeros((1, width), np.float32)}))
        assert answer.error is not None
        assert answer.error.code is ErrorCode.INVALID_ARG
        assert f"has {width} features in a row" in answer.error.message
    await model.drain_and_close()


def test_nothing_is_completed_where_the_file_is_missing(tmp_path):
    with pytest.raises(ServingError, match=r"unable to find '1/xgboost\.model'"):
        FilBackend().auto_complete(context_of('name: "m" backend: "fil"', tmp_path))


def test_auto_complete_takes_the_servers_batch_size_and_turns_batching_on(tmp_path):
    copy("sklearn_three", "checkpoint.tl", tmp_path / "1")
    text = 'name: "m" backend: "fil"' + parameter("model_type", "treelite_checkpoint")
    context = context_of(
        text + parameter("predict_proba", "true"),
        tmp_path,
        backend_config={"default-max-batch-size": "1024"},
    )

    FilBackend().auto_complete(context)

    done = context.config
    assert (done.max_batch_size, done.HasField("dynamic_batching")) == (1024, True)
    assert (list(done.input[0].dims), list(done.output[0].dims)) == ([5], [3])


def test_instances_on_a_gpu_are_refused_not_run_elsewhere(tmp_path):
    text = config("xgboost_json") + "instance_group { kind: KIND_GPU gpus: [0] }"

    with pytest.raises(UnsupportedError, match="runs trees on the CPU: write KIND_CPU"):
        FilBackend().load(context_of(text, tmp_path))


def test_decoupled_is_refused(tmp_path):
    text = config("xgboost_json") + "model_transaction_policy { decoupled: true }"

    with pytest.raises(UnsupportedError, match="fil answers once"):
        FilBackend().load(context_of(text, tmp_path))


class TestContract(BackendContract):
    backend = "fil"

    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls):
        x, scores = recorded("xgboost_three")
        x = x.astype(np.float32)

        def expected(sent):
            places = [np.flatnonzero((x == row).all(axis=1))[0] for row in sent["input__0"]]
            return {"output__0": scores[places].astype(np.float32)}

        given = parameter("model_type", "xgboost_json") + parameter("predict_proba", "true")
        return Subject(
            config=config("xgboost_json", "3", predict_proba="true").replace('name: "m"', ""),
            write=lambda folder: copy("xgboost_three", "xgboost.json", folder),
            inputs=lambda rows: {"input__0": x[:rows]},
            expected=expected,
            completion_config=given,
            runtime_module="treelite",
        )
