"""What the check of a model folder says of real TorchScript files, before anything is loaded."""

from __future__ import annotations

import pytest
import torch

from serving.config.check import check_model
from serving.config.findings import Severity
from serving.config.repair import apply_repair
from tests.serving.backends.pytorch import modules
from tests.serving.backends.pytorch.served import config, io

STATES = """sequence_batching {
  control_input {
    name: "START__1" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }
  }
  state { input_name: "IN__2" output_name: "OUT__1" data_type: TYPE_FP32 dims: [1] }
}
"""
HEAD = 'backend: "pytorch" max_batch_size: 8\n'
WORDS = io("input", "words", datatype="STRING", dims="1")


def findings(directory, module, text):
    modules.write(module, directory)
    (directory / "config.pbtxt").write_text(text)
    return [
        (item.code, item.message)
        for item in check_model(directory).findings
        if item.severity is not Severity.NOTE
    ]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (modules.Sums, config(["left", "right"], ["S", "D"])),
        (modules.Sums, config(["IN__1", "IN__0"], ["OUT__1"])),
        (modules.Sums, config(["IN__1", "other"], ["S"])),
        (modules.Mapped, config("AB", ["OUT"])),
        (modules.Defaults, config("x", ["OUT"])),
        (modules.Shout, HEAD + WORDS + io("output", "LOUD", datatype="STRING", dims="1")),
        (modules.Remembers, config(["X__0"], ["SUM__0"], STATES)),
        (modules.Net, config("x", ["OUT__0"])),
    ],
)
def test_nothing_is_wrong_with_a_right_model(tmp_path, module, text):
    """PT-02 to PT-08."""
    assert findings(tmp_path, module(), text.replace('name: "m" ', "")) == []


@pytest.mark.parametrize(
    ("module", "text", "code", "words"),
    [
        (modules.TwoMaps, config("ab", ["OUT"]), "PT-05", "takes a dictionary and other arguments"),
        (modules.Keyed, config("x", ["OUT"]), "PT-06", "forward returns Dict[str, Tensor]"),
        (
            modules.Remembers,
            config(["X__0"], ["SUM__0"], STATES.replace("IN__2", "state")),
            "PT-07",
            "state 'state' does not follow the <name>__<index>",
        ),
        (modules.Sums, HEAD + WORDS.replace("words", "left") + io("input", "right"), "PT-08", None),
        (
            modules.Shout,
            HEAD + WORDS.replace("[1]", "[1, 2]") + io("output", "OUT", datatype="STRING"),
            "PT-08",
            "TYPE_STRING with 2 dimensions",
        ),
    ],
)
def test_what_would_fail_the_load_is_said_before(tmp_path, module, text, code, words):
    """PT-05 to PT-08."""
    found = findings(tmp_path, module(), text.replace('name: "m" ', ""))

    said = [message for place, message in found if place == code]
    assert said
    assert words is None or words in said[0]


@pytest.mark.parametrize(("module", "count"), [(modules.Sums, 4), (modules.Shout, 3)])
def test_a_bare_file_gets_a_draft_of_its_config(tmp_path, module, count):
    """AUT-07: an uploaded .pt without a config; types and dims are to be written by hand."""
    modules.write(module(), tmp_path)
    text = 'backend: "pytorch"\n'
    (tmp_path / "config.pbtxt").write_text(text)
    (offer,) = [item for item in check_model(tmp_path).findings if item.repair is not None]

    (tmp_path / "config.pbtxt").write_text(apply_repair(text, offer.repair))

    after = check_model(tmp_path)
    assert [item for item in after.findings if item.severity is not Severity.NOTE] == []
    assert len(after.config.input) + len(after.config.output) == count


def test_a_module_written_in_python_is_not_compared_with_its_weights(tmp_path):
    """PT-24, REP-025: model.pt beside model.py is a state dict."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.py").write_text("import torch\nclass A(torch.nn.Module): pass\n")
    torch.save(modules.Net().state_dict(), tmp_path / "1" / "model.pt")
    text = config("x", ["y"], 'runtime: "model.py"').replace('name: "m" ', "")
    (tmp_path / "config.pbtxt").write_text(text)

    report = check_model(tmp_path)

    assert [item for item in report.findings if item.severity is Severity.ERROR] == []
