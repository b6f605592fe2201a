"""The arithmetic of the Try it views: file features, sound, CTC, tensors from what people type."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator

import numpy as np
import pytest

from tests.console.catalog.javascript import Modules, module_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def modules() -> Iterator[Modules]:
    with module_page() as modules:
        yield modules


def expected_features(content: bytes) -> list[int]:
    head = content[:4096].lstrip()[:1024]
    tail = content[-4096:].rstrip()[-1024:]
    return [*head, *[256] * (1024 - len(head)), *[256] * (1024 - len(tail)), *tail]


@pytest.mark.parametrize(
    "content",
    [
        b"  \n#!/bin/sh\necho hello\n\n",
        b"\x0b\x0c\r" + bytes(range(256)) * 40 + b" \t",
        b" " * 5000 + b"far away",
        b"x" * 1024,
        b"\x00 binary \x00",
    ],
)
def test_file_features_strip_white_space_and_pad_like_the_model_expects(
    modules: Modules, content: bytes
) -> None:
    vector = modules.run(
        "try_it/file_ends_features.js",
        """m.readEnds(new File([Uint8Array.from(given)], "f"))
            .then(({first, last}) => m.features(first, last))""",
        list(content),
    )

    assert vector == expected_features(content)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "empty"),
        (b"hi", "txt"),
        (b"\xff\xfe", "unknown"),
        (b" " * 20 + b"ab", "txt"),
        (b"12345678", None),
    ],
)
def test_files_too_small_for_the_model_are_named_by_rule(
    modules: Modules, content: bytes, rule: str | None
) -> None:
    named = modules.run(
        "try_it/file_ends_features.js",
        """m.readEnds(new File([Uint8Array.from(given)], "f")).then(({first, last}) =>
            m.ruleFor(given.length, first, m.features(first, last)))""",
        list(content),
    )

    assert named == rule


def wav_bytes(samples: np.ndarray, *, rate: int = 8000, channels: int = 1, width: int = 2) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def test_reads_stereo_wav_as_one_channel(modules: Modules) -> None:
    frames = np.array([[16384, 0], [-32768, -32768]], "<i2")

    sound = modules.run(
        "try_it/wav.js",
        """(({samples, rate}) => ({samples: Array.from(samples), rate}))
            (m.readWav(Uint8Array.from(given).buffer))""",
        list(wav_bytes(frames, channels=2)),
    )

    assert sound == {"samples": [0.25, -1.0], "rate": 8000}


def test_a_file_that_is_no_wav_says_so(modules: Modules) -> None:
    message = modules.run(
        "try_it/wav.js",
        "(() => { try { m.readWav(new ArrayBuffer(100)); } catch (e) { return e.message; } })()",
    )

    assert "not a WAV file" in message


def test_resampling_keeps_a_low_tone(modules: Modules) -> None:
    tone = np.sin(2 * np.pi * 100 * np.arange(4800) / 48000)

    resampled = modules.run(
        "try_it/wav.js", "m.resample(Float32Array.from(given), 48000)", tone.tolist()
    )

    expected = np.sin(2 * np.pi * 100 * np.arange(1600) / 16000)
    assert len(resampled) == 1600
    assert np.abs(np.array(resampled[10:]) - expected[10:]).max() < 0.02


def test_windows_carry_the_end_of_the_last_one_as_context(modules: Modules) -> None:
    windows = modules.run(
        "try_it/wav.js",
        "m.windows(Float32Array.of(1, 2, 3, 4, 5, 6), 4, 2).map((w) => Array.from(w))",
    )

    assert windows == [[0, 0, 1, 2, 3, 4], [3, 4, 5, 6, 0, 0]]


def test_ctc_drops_blanks_and_repeats(modules: Modules) -> None:
    steps = [1, 1, 0, 1, 2, 2, 0, 0]
    scores = np.eye(3)[steps].ravel().tolist()

    decoded = modules.run(
        "try_it/ctc.js", "m.greedyDecode(given, 8, 3, ['<blank>', 'a', 'b'])", scores
    )

    assert decoded["text"] == "aab"
    assert decoded["confidence"] == 1


@pytest.mark.parametrize(
    ("dims", "layout"),
    [
        ([3, 224, 224], "NCHW"),
        ([1, -1, -1], "NCHW"),
        ([224, 224, 3], "NHWC"),
        ([2048], None),
        ([3, 2, 2], None),
        ([16, 224, 224], None),
    ],
)
def test_recognises_images_by_their_dims(
    modules: Modules, dims: list[int], layout: str | None
) -> None:
    found = modules.run("try_it/ctc.js", "m.imageLayout(given)?.name ?? null", dims)

    assert found == layout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2", "x: the values are not JSON"),
        ("[1, 2, 3]", "x: shape [2, 2] needs 4 elements, the data has 3."),
        ('[1, 2, 3, "4"]', 'x: "4" is no INT32 value.'),
        ("[1, 2, 3, 4.5]", "x: 4.5 is no INT32 value."),
    ],
)
def test_wrong_values_say_what_to_mend(modules: Modules, text: str, message: str) -> None:
    said = modules.run(
        "try_it/tensor_input.js",
        """(() => { try { m.fromJson(given, {name: "x", datatype: "INT32", shape: [2, 2]}); }
            catch (problem) { return problem.message; } })()""",
        text,
    )

    assert said.startswith(message)


def test_an_open_dimension_takes_its_size_from_the_data(modules: Modules) -> None:
    tensor = modules.run(
        "try_it/tensor_input.js",
        'm.fromJson("[1, 2, 3, 4]", {name: "x", datatype: "FP32", shape: [-1, 2]})',
    )

    assert tensor["shape"] == [2, 2]


def test_snippets_can_be_run_elsewhere(modules: Modules) -> None:
    request = """{inputs: [{name: "x", datatype: "BYTES", shape: [1, 1], data: ["it's"]}],
        outputs: [{name: "y"}]}"""

    curl = modules.run("try_it/snippets.js", f"m.asCurl('http://c/v2/models/m/infer', {request})")
    python = modules.run("try_it/snippets.js", f"m.asPython('http://c:8080', 'm', '2', {request})")

    assert (
        """'{"inputs":[{"name":"x","datatype":"BYTES","shape":[1,1],"data":["it'\\''s"]}]""" in curl
    )
    compile(python, "snippet.py", "exec")
    assert 'InferenceServerClient("c:8080")' in python
    assert 'model_version="2"' in python


def test_snippets_keep_the_sequence_of_a_request(modules: Modules) -> None:
    request = """{inputs: [{name: "x", datatype: "FP32", shape: [1], data: [1]}],
        parameters: {sequence_id: 7, sequence_start: true, sequence_end: false}}"""

    curl = modules.run("try_it/snippets.js", f"m.asCurl('http://c/v2', {request})")
    python = modules.run("try_it/snippets.js", f"m.asPython('http://c:8080', 'm', '', {request})")

    assert '"parameters":{"sequence_id":7,"sequence_start":true,"sequence_end":false}' in curl
    compile(python, "snippet.py", "exec")
    assert "sequence_id=7, sequence_start=True, sequence_end=False, headers" in python


SCHEMA = {
    "root": "Config",
    "messages": {
        "Config": {
            "name": {"kind": "string", "message": None, "values": [], "is_repeated": False},
            "backend": {"kind": "string", "message": None, "values": ["fil"], "is_repeated": False},
            "input": {"kind": "message", "message": "Input", "values": [], "is_repeated": True},
        },
        "Input": {
            "data_type": {
                "kind": "enum",
                "message": None,
                "values": ["TYPE_FP32", "TYPE_INT8"],
                "is_repeated": False,
            },
        },
    },
}


@pytest.mark.parametrize(
    ("text", "captions"),
    [
        ("", ["name", "backend", "input"]),
        ('name: "x{"\n# input {\n', ["name", "backend", "input"]),
        ("input [ { ", ["data_type"]),
        ("input { data_type: ", ["TYPE_FP32", "TYPE_INT8"]),
        ("input { } ", ["name", "backend", "input"]),
        ("nonsense { ", []),
        ('backend: "f', ["fil"]),
        ("backend: ", ["fil"]),
        ('name: "', []),
        ("# don't\nbackend: '", ["fil"]),
        ('name: "a#b" backend: "', ["fil"]),
        ('name: "a" # "', ["name", "backend", "input"]),
    ],
)
def test_completion_knows_which_message_the_cursor_is_in(
    modules: Modules, text: str, captions: list[str]
) -> None:
    found = modules.run(
        "config_editor/completion.js",
        "m.completionsAt(given[0], given[1]).map((item) => item.caption)",
        [SCHEMA, text],
    )

    assert found == captions


TEXT = {"kind": "string", "message": None, "values": [], "is_repeated": False}
WITH_PARAMETERS = {
    "root": "Config",
    "messages": {
        "Config": {"parameters": {"kind": "message", "message": "Entry", "is_repeated": True}},
        "Entry": {"key": TEXT, "value": {"kind": "message", "message": "Value"}},
        "Value": {"string_value": TEXT},
    },
    "parameters": {"": ["isolation"], "fil": ["nthread"], "libtorch": ["INFERENCE_MODE"]},
}


@pytest.mark.parametrize(
    ("before", "after", "captions"),
    [
        ('backend: "fil"\nparameters { key: "', '" }', ["nthread"]),
        ('parameters { key: "', '" }\nbackend: "fil"', ["nthread"]),
        ('platform: "libtorch" parameters [ { key: ', "", ["INFERENCE_MODE"]),
        ('# backend: "fil"\nparameters { key: "', "", ["isolation"]),
        ('backend: "mine"\nparameters { key: "', "", ["isolation"]),
        ('backend: "fil"\nparameters { key: "x" value { string_value: "', "", []),
        ('backend: "fil"\nparameters { ', "", ["key", "value"]),
    ],
)
def test_completion_knows_the_parameters_of_the_backend(
    modules: Modules, before: str, after: str, captions: list[str]
) -> None:
    found = modules.run(
        "config_editor/completion.js",
        "m.completionsAt(given[0], given[1], given[1] + given[2]).map((item) => item.caption)",
        [WITH_PARAMETERS, before, after],
    )

    assert found == captions
