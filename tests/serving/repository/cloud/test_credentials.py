from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from serving.errors import InvalidArgumentError, UnsupportedError
from serving.repository.cloud.credentials import Credentials
from serving.repository.cloud.filesystem import open_filesystem
from serving.repository.cloud.store import ObjectStore
from serving.repository.cloud.url import parse
from tests.serving.repository.cloud.conftest import error_of
from tests.serving.repository.cloud.fakes import FakeBucket


@pytest.fixture
def written(tmp_path: Path):
    path = tmp_path / "credentials.json"

    def write(content: object) -> Credentials:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return Credentials(path, {})

    return write


def test_the_longest_prefix_wins_and_the_empty_one_is_the_default(written):
    credentials = written(
        {
            "s3": {
                "": {"key_id": "default", "secret_key": "s", "region": "eu-west-1"},
                "s3://one": {"key_id": "one", "secret_key": "s", "session_token": "t"},
                "s3://one/team/": {"profile": "team"},
            },
            "gs": {"gs://two": "/keys/two.json"},
            "as": {"as://account1/container": {"account_str": "account1", "account_key": "k"}},
        }
    )
    for url, expected in {
        "s3://other/x": {"key": "default", "secret": "s", "region": "eu-west-1"},
        "s3://one/x": {"key": "one", "secret": "s", "token": "t"},
        "s3://one/team": {"profile": "team"},
        "gs://two/models": {"token": "/keys/two.json"},
        "gs://three": {},
        "as://account1/container": {"account_name": "account1", "account_key": "k"},
    }.items():
        assert credentials.of(parse(url)) == expected, url


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"s3": {', "is not JSON: line 1 column 9"),
        ([], 'must be a JSON object of sections "s3", "gs" and "as"'),
        ({"s3": "x"}, "must be a JSON object of sections"),
        ({"s3": {"": {"keyid": "x"}}}, "has a key 'keyid', known are key_id, secret_key"),
        ({"s3": {"": {"key_id": 1}}}, "'key_id' must be a text"),
        ({"s3": {"": "x"}}, '"s3" / "" must be an object with keys key_id'),
    ],
)
def test_a_wrong_file_is_told_by_place_and_never_by_secret(written, content, told):
    credentials = written(content)
    message = error_of(lambda: credentials.of(parse("s3://bucket")))
    assert told in message
    assert "credentials.json" in message


def test_a_file_that_is_not_there_is_named(tmp_path):
    credentials = Credentials(tmp_path / "nope.json", {})
    assert "nope.json' cannot be read: No such file" in error_of(
        lambda: credentials.of(parse("gs://bucket"))
    )


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {}),
        (
            {"AZURE_STORAGE_ACCOUNT": "account1", "AZURE_STORAGE_KEY": "k"},
            {"account_key": "k"},
        ),
        ({"AZURE_STORAGE_KEY": "k"}, {"account_key": "k"}),
        ({"AZURE_STORAGE_ACCOUNT": "another", "AZURE_STORAGE_KEY": "k"}, {}),
        (
            {"AZURE_STORAGE_AUTH_TYPE": "managed_identity", "AZURE_STORAGE_CLIENT_ID": "c"},
            {"auth_type": "managed_identity", "client_id": "c"},
        ),
    ],
)
def test_azure_out_of_the_environment(environment, expected):
    assert Credentials(None, environment).of(parse("as://account1/container")) == expected


def test_google_takes_its_key_file_from_the_environment():
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": "/keys/one.json"}
    assert Credentials(None, environment).of(parse("gs://bucket")) == {"token": "/keys/one.json"}


def test_a_refusal_makes_the_file_be_read_again(written):
    entry = {"": {"key_id": "old", "secret_key": "s"}}
    credentials = written({"s3": entry})
    bucket, used = FakeBucket(), []
    bucket.write("a/config.pbtxt", "x")

    def opener(url, known, timeout_s):
        used.append(known["key"])

        def refuse() -> None:
            if known["key"] == "old":
                entry[""]["key_id"] = "new"
                written({"s3": entry})
                raise PermissionError("The key is not known")

        bucket.before_list = refuse
        return bucket

    store = ObjectStore(parse("s3://bucket/models"), credentials, opener=opener)
    assert store.names() == ["a"]
    assert used == ["old", "new"]


def test_a_lasting_refusal_says_what_to_set(bucket):
    def refuse() -> None:
        raise PermissionError("Access Denied")

    bucket.before_list = refuse
    url = parse("s3://bucket/models")
    alone = ObjectStore(url, Credentials(), opener=lambda *args: bucket)
    message = error_of(alone.names)
    assert "listing of model repository 's3://bucket/models' was refused: Access Denied" in message
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in message


def test_a_missing_package_names_the_command_that_installs_it(monkeypatch):
    for package, extra, url in (
        ("s3fs", "s3", "s3://bucket"),
        ("gcsfs", "gcs", "gs://bucket"),
        ("adlfs", "azure", "as://account1/container"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UnsupportedError) as caught:
            open_filesystem(parse(url), {}, 5)
        assert f"pip install 'conch[{extra}]'" in caught.value.message


def test_a_key_file_that_is_not_there_is_named():
    with pytest.raises(InvalidArgumentError, match=r"the key file '/nope\.json' does not exist"):
        open_filesystem(parse("gs://bucket"), {"token": "/nope.json"}, 5)
