"""ModelConfig as JSON: what is shown, and what an override may say."""

from __future__ import annotations

import json

import pytest

from serving.config.json_form import from_json, to_json
from serving.config.pbtxt import parse
from serving.errors import InvalidArgumentError
from tests.serving.config.data import GOOD


@pytest.mark.parametrize("name", GOOD)
def test_json_comes_back_as_the_same_config(name):
    config = parse(GOOD[name]).config

    assert from_json(json.dumps(to_json(config))) == config


def test_64_bit_integers_are_numbers():
    config = parse("input { dims: [9007199254740993] }").config

    assert to_json(config)["input"][0]["dims"] == [9007199254740993]


def test_an_override_may_use_strings_for_integers_any_enum_case_and_camel_case():
    config = from_json(
        '{"maxBatchSize": "8", "input": [{"data_type": "type_fp32", "dims": [3.0]}]}'
    )

    assert config.max_batch_size == 8
    assert config.input[0].data_type == 11
    assert list(config.input[0].dims) == [3]


def test_null_means_not_given():
    assert from_json('{"max_batch_size": null}').max_batch_size == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "the config must be a JSON object"),
        ('{"inputs": []}', "unknown field 'inputs'; did you mean 'input'?"),
        ('{"input": [{"datatype": "FP32"}]}', "'datatype' in 'input[0]'; did you mean 'data_type'"),
        ('{"input": [{"data_type": "FP32"}]}', "did you mean TYPE_FP32?"),
        ('{"input": {"name": "a"}}', "'input' must be an array"),
        ('{"parameters": [{"key": "a", "value": "b"}]}', "'parameters' is a map"),
        ('{"parameters": {"a": "b"}}', "'parameters[\"a\"]' must be an object"),
        ('{"max_batch_size": 1.5}', "'max_batch_size' must be an integer, got 1.5"),
        ('{"max_batch_size": true}', "must be an integer"),
        ('{"max_batch_size": 3000000000}', "from -2147483648 to 2147483647"),
        ('{"dynamic_batching": {"preserve_ordering": 1}}', "must be true or false"),
        ('{"dynamic_batching": {}, "sequence_batching": {}}', "exclude each other"),
        ('{"name": 3}', "'name' must be a string, got 3"),
        ("[" * 100_000, "Invalid config override"),
    ],
)
def test_a_wrong_override_says_what_and_where(text, words):
    with pytest.raises(InvalidArgumentError) as caught:
        from_json(text)

    assert caught.value.message.startswith("Invalid config override: ")
    assert words in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        '{"backend": "\\ud800"}',
        '{"parameters": {"\\ud800": {"string_value": "x"}}}',
        '{"cc_model_filenames": {"7.0": "\\udfff"}}',
    ],
)
def test_an_override_with_half_a_character_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="must be text without half characters"):
        from_json(text)
