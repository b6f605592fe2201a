from __future__ import annotations

import errno

import pytest

from serving.repository.cloud.faults import Fault, classify, told


class HttpError(Exception):
    """As gcsfs has it."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code


def _botocore(code: str, status: int) -> Exception:
    exceptions = pytest.importorskip("botocore.exceptions")
    answer = {
        "Error": {"Code": code, "Message": "m"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return exceptions.ClientError(answer, "ListObjectsV2")


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (PermissionError("Forbidden"), Fault.REFUSED),
        (HttpError(401), Fault.REFUSED),
        (HttpError(403), Fault.REFUSED),
        (HttpError(503), Fault.PASSING),
        (HttpError(429), Fault.PASSING),
        (HttpError(418), Fault.OTHER),
        (TimeoutError(), Fault.PASSING),
        (ConnectionRefusedError(), Fault.PASSING),
        (OSError(errno.EINVAL, "bad"), Fault.OTHER),
        (ValueError("bug"), Fault.OTHER),
    ],
)
def test_faults_are_told_apart_by_what_can_be_done_about_them(error, fault):
    assert classify(error) is fault


def test_an_answer_of_aws_is_no_lack_of_one():
    assert classify(_botocore("NoSuchUpload", 404)) is Fault.OTHER
    assert classify(_botocore("SlowDown", 503)) is Fault.PASSING
    assert classify(_botocore("AccessDenied", 403)) is Fault.REFUSED
    wrapped = _caused(OSError(errno.EIO, "InternalError"), _botocore("InternalError", 500))
    assert classify(wrapped) is Fault.PASSING


def test_the_words_of_a_library_stay_on_one_line():
    assert told(ValueError("a\n  b" + "c" * 1000)).startswith("a bccc")
    assert len(told(ValueError("c" * 1000))) < 310
    assert told(TimeoutError()) == "TimeoutError"
