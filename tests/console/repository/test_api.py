"""REST: uploads, files, config, policy, deletes. Every route with too little right and enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.repository import configs, staging
from console.repository.models import Upload
from tests.console.disk import Committed
from tests.console.repository.packing import CONFIG, write_model, zip_bytes

IDENT = {"ident/config.pbtxt": CONFIG, "ident/1/weights.bin": b"w1"}
EIGHT = CONFIG.replace("max_batch_size: 4", "max_batch_size: 8")
SOME_ID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def model(repository: Path) -> Path:
    return write_model(repository, versions=(1, 2))


def send(client: Client, method: str, path: str, body: Any = None) -> Any:
    content = b"" if body is None else json.dumps(body).encode()
    return client.generic(method, f"/api/v1/{path}", content, content_type="application/json")


def patch(client: Client, upload: str, content: bytes, offset: int, path: str = "") -> Any:
    return client.generic(
        "PATCH",
        f"/api/v1/uploads/{upload}/content?path={path}",
        content,
        content_type="application/octet-stream",
        headers={"Upload-Offset": str(offset)},
    )


READS = ["uploads", "models/ident/files", "models/ident/files/config.pbtxt", "models/ident/config",
         "models/ident/revisions", "models/ident/versions/1"]  # fmt: skip
WRITES = [
    ("POST", "uploads"), ("PATCH", f"uploads/{SOME_ID}"), ("DELETE", f"uploads/{SOME_ID}"),
    ("PATCH", f"uploads/{SOME_ID}/content"), ("POST", f"uploads/{SOME_ID}/complete"),
    ("PUT", f"uploads/{SOME_ID}/config"), ("POST", f"uploads/{SOME_ID}/publish"),
    ("PUT", "models/ident/config"), ("PUT", "models/ident/policy"),
]  # fmt: skip
DELETES = ["models/ident/files", "models/ident/versions/1"]


@pytest.mark.parametrize("path", READS)
def test_reading_needs_the_role_viewer(
    model: Path, login: Any, viewer: Any, stranger: Any, path: str
) -> None:
    assert send(Client(), "GET", path).status_code == 401
    refused = send(login(stranger), "GET", path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "permission_denied")
    answer = send(login(viewer), "GET", path)
    assert answer.status_code == 200
    answer.close()


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_writing_needs_the_role_operator(
    model: Path, login: Any, viewer: Any, method: str, path: str
) -> None:
    assert send(Client(), method, path, {}).status_code == 401
    assert send(login(viewer), method, path, {}).status_code == 403


@pytest.mark.parametrize("path", DELETES)
def test_deleting_needs_the_role_admin(
    model: Path, login: Any, operator: Any, admin: Any, path: str
) -> None:
    assert send(Client(), "DELETE", path).status_code == 401
    assert send(login(operator), "DELETE", path).status_code == 403
    answer = send(login(admin), "DELETE", path)
    assert (answer.status_code, answer.json()["model"]) == (200, "ident")


def test_an_upload_in_chunks_from_start_to_publish(
    repository: Path, login: Any, operator: Any, committed: Committed
) -> None:
    client, content = login(operator), zip_bytes(IDENT)
    wish = {"file_name": "ident.zip", "bytes": len(content)}

    created = send(client, "POST", "uploads", wish)
    upload = created.json()["id"]
    assert (created.status_code, created.json()["state"]) == (201, "staged")
    assert patch(client, upload, content[:100], 0).json() == {"path": "ident.zip", "offset": 100}
    late = patch(client, upload, content[100:], 0)
    assert (late.status_code, late.json()["error"]["offset"]) == (409, 100)
    assert late["Upload-Offset"] == "100"
    assert send(client, "GET", f"uploads/{upload}/content").json()["offset"] == 100
    patch(client, upload, content[100:], 100)
    with committed():
        assert send(client, "POST", f"uploads/{upload}/complete").status_code == 202
    checked = send(client, "GET", f"uploads/{upload}").json()
    assert (checked["state"], checked["can_publish"], checked["model"]) == (
        "checked", True, "ident",
    )  # fmt: skip
    published = send(client, "POST", f"uploads/{upload}/publish", {"load": False}).json()

    assert published["state"] == "published"
    assert (repository / "ident/1/weights.bin").read_bytes() == b"w1"


def test_a_folder_is_sent_file_by_file(
    repository: Path, login: Any, operator: Any, committed: Committed
) -> None:
    client = login(operator)
    upload = send(client, "POST", "uploads", {"publish": True}).json()["id"]

    for path, content in IDENT.items():
        patch(client, upload, content.encode() if isinstance(content, str) else content, 0, path)
    with committed():
        send(client, "POST", f"uploads/{upload}/complete")

    assert Upload.objects.get().state == "published"


def test_an_empty_file_is_a_file(repository: Path, login: Any, operator: Any) -> None:
    client = login(operator)
    upload = send(client, "POST", "uploads", {}).json()["id"]

    assert patch(client, upload, b"", 0, "ens/1/empty.txt").json()["offset"] == 0

    assert (staging.area(upload).incoming / "ens/1/empty.txt").is_file()


@pytest.mark.parametrize(
    ("body", "field"),
    [({"model": "a/b"}, "model"), ({"version": "x"}, "version"), ({"bytes": -1}, "bytes"),
     ({"bytes": "many"}, "bytes"), ({"file_name": "../a.zip"}, "file_name"),
     ({"publish": "perhaps"}, "publish"), ({"sha256": "0"}, "sha256")],
)  # fmt: skip
def test_a_bad_wish_is_a_400_with_its_field(
    repository: Path, login: Any, operator: Any, body: Any, field: str
) -> None:
    answer = send(login(operator), "POST", "uploads", body)

    assert answer.status_code == 400
    assert field in answer.json()["error"]["fields"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"text"', b"\xff", b"[" * 5000])
def test_a_body_that_is_no_object_is_a_400(
    repository: Path, login: Any, operator: Any, body: bytes
) -> None:
    answer = login(operator).generic(
        "PUT", "/api/v1/models/ident/config", body, content_type="application/json"
    )

    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("offset", ["", "-1", "abc", "1.5", "9" * 30, "٣"])
def test_a_bad_offset_is_a_400(repository: Path, login: Any, operator: Any, offset: str) -> None:
    client = login(operator)
    upload = send(client, "POST", "uploads", {"file_name": "m.zip"}).json()["id"]

    answer = client.generic(
        "PATCH", f"/api/v1/uploads/{upload}/content", b"x",
        content_type="application/octet-stream", HTTP_UPLOAD_OFFSET=offset,
    )  # fmt: skip

    assert answer.status_code == 400
    assert "Upload-Offset" in answer.json()["error"]["fields"]


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a\\b", "%00"])
def test_a_path_out_of_the_folder_is_a_400(
    repository: Path, login: Any, operator: Any, path: str
) -> None:
    client = login(operator)
    upload = send(client, "POST", "uploads", {}).json()["id"]

    assert patch(client, upload, b"x", 0, path).status_code == 400
    assert staging.list_files(repository.parent) == []


def test_an_unknown_upload_is_a_404(repository: Path, login: Any, operator: Any) -> None:
    client = login(operator)

    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/complete"), ("POST", "/publish")]:
        answer = send(client, method, f"uploads/{SOME_ID}{path}", {})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_the_config_of_an_upload_is_mended(
    repository: Path, login: Any, operator: Any, committed: Committed
) -> None:
    client = login(operator)
    wrong = CONFIG.replace("max_batch_size: 4", "max_batch_size: four")
    upload = send(client, "POST", "uploads", {"file_name": "ident.zip"}).json()["id"]
    patch(client, upload, zip_bytes(IDENT | {"ident/config.pbtxt": wrong}), 0)
    with committed():
        send(client, "POST", f"uploads/{upload}/complete")

    refused = send(client, "POST", f"uploads/{upload}/publish", {})
    mended = send(client, "PUT", f"uploads/{upload}/config", {"text": CONFIG})

    assert refused.status_code == 400
    assert refused.json()["error"]["findings"][0]["line"] == 3
    assert mended.json()["can_publish"] is True
    renamed = send(client, "PATCH", f"uploads/{upload}", {"version": "7"})
    assert renamed.json()["versions"] == [7]


def test_publishing_an_existing_version_is_a_409_with_the_next_one(
    model: Path, login: Any, operator: Any, committed: Committed
) -> None:
    client = login(operator)
    upload = send(client, "POST", "uploads", {"file_name": "ident.zip"}).json()["id"]
    patch(client, upload, zip_bytes(IDENT | {"ident/3/w": b"3"}), 0)
    with committed():
        send(client, "POST", f"uploads/{upload}/complete")
    Upload.objects.update(findings=[])

    answer = send(client, "POST", f"uploads/{upload}/publish", {})

    assert answer.status_code == 409
    assert answer.json()["error"]["next_version"] == 3


def test_config_is_read_with_its_digest_and_saved_against_it(
    model: Path, login: Any, operator: Any
) -> None:
    client = login(operator)
    read = send(client, "GET", "models/ident/config").json()

    body = {"text": EIGHT, "expected_sha256": read["sha256"]}
    saved = send(client, "PUT", "models/ident/config", body)
    again = send(client, "PUT", "models/ident/config", {**body, "text": CONFIG})

    assert (read["text"], read["findings"]) == (CONFIG, [])
    assert saved.json() == {
        "revision": 2, "sha256": configs.config_sha256(EIGHT), "deployment": None,
    }  # fmt: skip
    assert again.status_code == 409
    assert again.json()["error"]["current"]["text"] == EIGHT


def test_an_invalid_config_is_a_400_with_findings(model: Path, login: Any, operator: Any) -> None:
    answer = send(login(operator), "PUT", "models/ident/config", {"text": "nonsense {"})

    assert answer.status_code == 400
    assert answer.json()["error"]["findings"][0]["severity"] == "error"
    assert (model / "config.pbtxt").read_text() == CONFIG


def test_the_policy_is_changed_and_a_bad_one_is_refused(
    model: Path, login: Any, operator: Any
) -> None:
    client = login(operator)

    good = send(client, "PUT", "models/ident/policy", {"policy": {"latest": {"num_versions": 2}}})
    bad = send(client, "PUT", "models/ident/policy", {"policy": {"latest": {"num_versions": 0}}})

    assert good.json()["revision"] == 2
    assert "num_versions: 2" in (model / "config.pbtxt").read_text()
    assert "policy" in bad.json()["error"]["fields"]


def test_revisions_are_listed_and_read(model: Path, login: Any, operator: Any) -> None:
    client = login(operator)
    send(client, "PUT", "models/ident/config", {"text": EIGHT, "reason": "bigger"})

    rows = send(client, "GET", "models/ident/revisions").json()

    assert [(row["number"], row["reason"]) for row in rows] == [(2, "bigger"), (1, "Found on disk")]
    assert send(client, "GET", "models/ident/revisions/1").json()["text"] == CONFIG
    assert send(client, "GET", "models/ident/revisions/9").status_code == 404


def test_files_are_listed_and_downloaded(model: Path, login: Any, viewer: Any) -> None:
    client = login(viewer)

    names = [row["name"] for row in send(client, "GET", "models/ident/files").json()]
    inner = send(client, "GET", "models/ident/files?path=2").json()
    content = send(client, "GET", "models/ident/files/2/weights.bin")

    assert names == ["2", "1", "config.pbtxt"]
    assert inner[0]["path"] == "ident/2/weights.bin"
    assert b"".join(content.streaming_content) == b"w2"


@pytest.mark.parametrize(
    "path",
    ["models/nope/config", "models/nope/files", "models/.conch/files", "models/ident/files/1",
     "models/ident/files/..%2f..%2fetc", "models/ident/files?path=../..", "models/ident/versions/9",
     "models/ident/files/1/%5c..%5cx"],
)  # fmt: skip
def test_what_is_not_there_is_a_404(model: Path, login: Any, viewer: Any, path: str) -> None:
    assert send(login(viewer), "GET", path).status_code == 404
