"""Tree models that would crash the server, or never end, where Treelite reads them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import treelite

from serving import child_program
from serving.backends import fil_trial
from serving.backends.fil import FilBackend
from serving.errors import ModelLoadError
from tests.serving.backends import tree_models
from tests.serving.loading import context_of

CONFIG = tree_models.config("treelite_checkpoint", "3", predict_proba="true")


def write(directory, change):
    """A checkpoint of a forest, with something in it changed."""
    model = treelite.Model.deserialize(tree_models.FOLDER / "sklearn_three" / "checkpoint.tl")
    change(model)
    path = directory / "1" / "checkpoint.tl"
    path.parent.mkdir(parents=True)
    model.serialize(path)


def of_tree(field, index, value):
    def change(model):
        tree = model.get_tree_accessor(0)
        numbers = np.array(tree.get_field(field))
        numbers[index] = value
        tree.set_field(field, numbers)

    return change


def of_head(field, index, value):
    def change(model):
        head = model.get_header_accessor()
        numbers = np.array(head.get_field(field))
        numbers[index] = value
        head.set_field(field, numbers)

    return change


def refused(directory):
    with pytest.raises(ModelLoadError) as caught:
        FilBackend().load(context_of(CONFIG, directory))
    return caught.value.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_tree("cleft", 0, 1_000_000), "has a branch that leads nowhere"),
        (of_tree("cright", 1, 0), "has a branch that leads nowhere"),
        (of_tree("cleft", 0, 2), "has branches that grow together"),
        (of_tree("split_index", 0, 5), "asks for a feature that it has not"),
        (of_tree("leaf_vector_end", -1, 1_000_000), "leaves or categories that it has not"),
        (of_head("class_id", 0, 3), "add to classes that it has not"),
    ],
)
def test_trees_that_lead_astray_are_refused(tmp_path, change, words):
    """Each of these reads or writes beyond its memory, or runs in a circle, when it predicts."""
    write(tmp_path, change)

    message = refused(tmp_path)

    assert "1/checkpoint.tl is no model of type treelite_checkpoint: the file is damaged" in message
    assert words in message


def test_a_file_that_crashes_its_reader_is_refused_and_the_server_goes_on(tmp_path, monkeypatch):
    write(tmp_path, lambda model: model.get_header_accessor().set_field("attributes", "{}"))
    crash = [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"]
    monkeypatch.setattr(child_program, "command", lambda *words: crash)

    message = refused(tmp_path)

    assert "the file is damaged: a process that read it was killed by signal SIGSEGV" in message


def test_a_file_that_is_never_read_to_its_end_is_refused(tmp_path, monkeypatch):
    write(tmp_path, lambda model: model.get_header_accessor().set_field("attributes", "{} "))
    monkeypatch.setattr(fil_trial, "_SECONDS", 0)

    assert "reading it did not end within 0 s" in refused(tmp_path)


def test_what_has_passed_is_not_tried_again(tmp_path, monkeypatch):
    """The content counts, wherever it lies."""
    for place in ("a", "b"):
        tree_models.copy("sklearn_three", "checkpoint.tl", tmp_path / place / "1")
    FilBackend().load(context_of(CONFIG, tmp_path / "a"))
    monkeypatch.setattr(child_program, "command", None)

    FilBackend().load(context_of(CONFIG, tmp_path / "b"))
