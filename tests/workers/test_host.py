"""What a worker says of an operation that failed."""

from __future__ import annotations

from concurrent.futures import Future

from serving.errors import ModelLoadError
from workers.host import _outcome


def failed(message: str) -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(ModelLoadError(message))
    return future


def test_why_a_load_failed_is_said_once() -> None:
    done = failed(
        "load failed for model 'a.b': version 1 is at UNAVAILABLE state: failed to load 'a.b' "
        "version 1: initialize: no memory; version 12 is at UNAVAILABLE state: no file"
    )

    assert _outcome(done, "load", "a.b") == "version 1: initialize: no memory; version 12: no file"


def test_other_words_stay_as_they_are() -> None:
    told = "load failed for model 'm': config.pbtxt:3:1: bad"

    assert _outcome(failed(told), "load", "m") == "config.pbtxt:3:1: bad"
    assert _outcome(failed("no such model 'm'"), "load", "m") == "no such model 'm'"
