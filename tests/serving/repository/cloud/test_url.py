from __future__ import annotations

import pytest

from serving.errors import InvalidArgumentError
from serving.repository.cloud.url import is_url, parse, split_list


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/a/path/", ("bucket", "a/path", "", "")),
        ("s3://my.bucket-1", ("my.bucket-1", "", "", "")),
        ("s3://host:9000/bucket/path", ("bucket", "path", "http://host:9000", "")),
        ("s3://http://10.0.0.1:9000/bucket", ("bucket", "", "http://10.0.0.1:9000", "")),
        ("s3://https://host:9000/bucket/p", ("bucket", "p", "https://host:9000", "")),
        ("s3://https://minio.example.com/bucket", ("bucket", "", "https://minio.example.com", "")),
        ("s3://[::1]:9000/bucket", ("bucket", "", "http://[::1]:9000", "")),
        ("gs://bucket/path", ("bucket", "path", "", "")),
        ("as://account1/container/path", ("container", "path", "", "account1")),
        ("as://account1.blob.core.windows.net/container", ("container", "", "", "account1")),
    ],
)
def test_forms_of_urls(text, expected):
    url = parse(text)
    assert (url.bucket, url.prefix, url.endpoint, url.account) == expected
    assert str(url) == text.rstrip("/")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("s3://", "it names no bucket; write s3://bucket/path"),
        ("s3://host:9000", "it names no bucket"),
        ("gs://x/models", "'x' is not the name of a bucket; write gs://bucket/path"),
        ("gs://bucket/a/../b", "has an empty part, '.' or '..'"),
        ("gs://bucket/a//b", "has an empty part"),
        ("as://account1", "it names no container"),
        ("as://No_Account/container", "'No_Account' is not the name of a storage account"),
        ("hdfs://host/models", "a scheme that is not known: write s3://"),
    ],
)
def test_other_urls_are_refused_with_the_form_that_is_right(text, told):
    with pytest.raises(InvalidArgumentError) as caught:
        parse(text)
    assert told in caught.value.message


def test_a_child_is_a_model_of_the_repository():
    child = parse("s3://host:9000/bucket/models").child("a")
    assert (str(child), child.key) == ("s3://host:9000/bucket/models/a", "bucket/models/a")
    assert parse("gs://bucket").child("a").key == "bucket/a"


def test_a_path_is_no_url():
    assert not is_url("/models")
    assert not is_url("models:of/mine")
    assert is_url("ftp://host")


def test_colons_inside_of_urls_do_not_end_an_item():
    items = ["/a", "s3://bucket/x", "gs://b2/y", "s3://host:9000/b/z", "../c", "s3://https://h:1/b"]
    assert split_list(":".join(items)) == items
    assert split_list("/a::/b:") == ["/a", "/b"]
