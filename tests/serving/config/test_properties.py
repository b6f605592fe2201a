"""What holds for every config and every text."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.config.complete import complete
from serving.config.findings import Severity, errors_of
from serving.config.format import to_pbtxt
from serving.config.json_form import from_json, to_json
from serving.config.pbtxt import parse
from serving.config.policy_edit import set_version_policy
from serving.config.protobuf import pb
from serving.config.tokens import Lines
from serving.config.validate import validate
from tests.serving.config.data import GOOD
from tests.serving.config.generated import Writer, random_config

RANDOMS = st.integers(0, 2**32 - 1).map(Random)
many = settings(max_examples=150, deadline=None)


@many
@given(RANDOMS)
def test_text_of_a_config_gives_the_config_again(random):
    config = random_config(random)

    parsed = parse(to_pbtxt(config))

    assert parsed.config == config
    assert errors_of(parsed.findings) == []


@many
@given(RANDOMS)
def test_json_of_a_config_gives_the_config_again(random):
    config = random_config(random)

    assert from_json(json.dumps(to_json(config))) == config


@many
@given(RANDOMS)
def test_every_style_is_read_and_every_field_is_found(random):
    config = random_config(random)
    writer = Writer(random)
    text = writer.write(config)

    parsed = parse(text)

    assert parsed.config == config
    assert errors_of(parsed.findings) == []
    lines = Lines(text)
    wanted = {path: lines.place(offset) for path, offset in writer.places.items()}
    assert {path: parsed.position(path) for path in wanted} == wanted


@many
@given(RANDOMS, st.sampled_from(sorted(GOOD)), st.text(max_size=3))
def test_a_damaged_text_never_raises_and_a_refusal_has_a_reason(random, name, junk):
    text = GOOD[name]
    start = random.randint(0, len(text))
    damaged = text[:start] + junk + text[start + random.randint(0, 4) :]

    parsed = parse(damaged)

    assert (parsed.config is None) <= bool(errors_of(parsed.findings))
    for finding in parsed.findings:
        assert finding.line >= 1
        assert finding.column >= 1


@many
@given(st.text(alphabet="inputdms:{}[]<>,;\"'# \n$\\/0-9_éx1", max_size=60))
def test_any_text_is_read_without_raising(text):
    parsed = parse(text)

    assert (parsed.config is not None) or errors_of(parsed.findings)


@many
@given(RANDOMS)
def test_any_config_is_completed_and_validated_without_raising(random):
    parsed = parse(to_pbtxt(random_config(random)))

    complete(parsed.config, name="m", model_directory=None, gpu_count=random.randint(0, 2))
    findings = validate(parsed, directory_name="m")

    assert all(item.message and item.code for item in findings)
    assert all(isinstance(item.severity, Severity) for item in findings)


@many
@given(RANDOMS)
def test_a_policy_edit_changes_the_policy_alone(random):
    config = random_config(random)
    text = Writer(random).write(config)

    edited = set_version_policy(text, {"specific": {"versions": [3, 4]}})

    wanted = pb.ModelConfig()
    wanted.CopyFrom(config)
    wanted.ClearField("version_policy")
    wanted.version_policy.specific.versions.extend([3, 4])
    assert parse(edited).config == wanted


@many
@given(RANDOMS)
def test_an_exported_effective_config_is_its_own_effective_config(random):
    """AUT-09."""
    effective = random_config(random)
    gpu_count = random.randint(0, 2)
    complete(effective, name="m", model_directory=None, gpu_count=gpu_count)

    again = parse(to_pbtxt(effective)).config

    assert again == effective
    assert complete(again, name="m", model_directory=None, gpu_count=gpu_count) == []
    assert again == effective
