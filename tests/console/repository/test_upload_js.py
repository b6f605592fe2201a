"""The upload script in Chromium: chunks, offsets, a connection that breaks, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.console.catalog.javascript import Modules, module_page

pytestmark = pytest.mark.browser

SEND = """m.sendAll({
  api: "/api/v1/uploads",
  token: "csrf",
  picked: given.files.map(([path, size]) => ({path, file: new File([new Uint8Array(size)], path)})),
  wishes: {model: "cat", version: ""},
  signal: new AbortController().signal,
  report: (sent, total) => (window.progress ??= []).push([sent, total]),
}).then((upload) => upload.page, (problem) => "refused: " + problem.message)"""
MIB = 1 << 20


class FakeApi:
    """Answers the page's requests as the REST API does."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.sizes: dict[str, int] = {}
        self.drop_next = 0
        """Requests whose answer never arrives, though the bytes were stored."""
        self.refusal: dict[str, Any] | None = None

    def __call__(self, route: Any) -> None:
        request = route.request
        url = urlsplit(request.url)
        name = url.path.removeprefix("/api/v1/uploads").strip("/").partition("/")[2]
        self.calls.append((request.method, name, request.headers.get("upload-offset")))
        if request.method == "DELETE":
            route.fulfill(status=204)
        elif name == "content":
            self.content(route, parse_qs(url.query)["path"][0])
        elif self.refusal:
            route.fulfill(status=400, json={"error": self.refusal})
        else:
            route.fulfill(status=201, json={"id": "7", "page": "/repository/upload/7/"})

    def content(self, route: Any, path: str) -> None:
        offset = int(route.request.headers["upload-offset"])
        have = self.sizes.get(path, 0)
        if offset != have:
            body = {"error": {"message": "wrong offset", "offset": have}}
            route.fulfill(status=409, json=body)
            return
        self.sizes[path] = have + len(route.request.post_data_buffer or b"")
        if self.drop_next:
            self.drop_next -= 1
            route.abort("connectionreset")
            return
        route.fulfill(json={"path": path, "offset": self.sizes[path]})

    def methods(self) -> list[str]:
        return [f"{method} {name}".strip() for method, name, _ in self.calls]


@pytest.fixture(scope="module")
def modules() -> Iterator[Modules]:
    with module_page() as found:
        yield found


@pytest.fixture
def api(modules: Modules) -> Iterator[FakeApi]:
    fake = FakeApi()
    modules.page.route("**/api/v1/**", fake)
    modules.page.evaluate("delete window.progress")
    yield fake
    modules.page.unroute("**/api/v1/**")


def send(modules: Modules, *files: tuple[str, int]) -> Any:
    return modules.run("upload/send.js", SEND, {"files": files})


def test_a_large_file_goes_in_chunks_with_progress(modules: Modules, api: FakeApi) -> None:
    page = send(modules, ("m.zip", 17 * MIB))

    assert page == "/repository/upload/7/"
    assert api.sizes == {"m.zip": 17 * MIB}
    assert api.methods() == ["POST", *["PATCH content"] * 3, "POST complete"]
    assert modules.page.evaluate("window.progress.at(-1)") == [17 * MIB, 17 * MIB]


def test_a_folder_goes_file_by_file_with_its_paths(modules: Modules, api: FakeApi) -> None:
    send(modules, ("m/config.pbtxt", 10), ("m/1/empty", 0))

    assert api.sizes == {"m/config.pbtxt": 10, "m/1/empty": 0}


def test_a_lost_answer_continues_at_the_offset_that_the_server_tells(
    modules: Modules, api: FakeApi
) -> None:
    api.drop_next = 1

    assert send(modules, ("m.zip", 9 * MIB)) == "/repository/upload/7/"

    offsets = [offset for method, _, offset in api.calls if method == "PATCH"]
    assert offsets == ["0", "0", str(8 * MIB)]
    assert api.sizes == {"m.zip": 9 * MIB}


def test_a_refusal_is_told_and_the_upload_given_up(modules: Modules, api: FakeApi) -> None:
    api.refusal = {"message": "Give the model another name."}

    assert send(modules, ("m.zip", 1)) == "refused: Give the model another name."


def test_only_an_address_of_this_site_is_followed(modules: Modules) -> None:
    result = modules.run(
        "upload/address.js",
        """given.map((page) => {
          try { return m.addressOf({page}).replace(location.origin, ""); }
          catch { return "refused"; }
        })""",
        [
            "/repository/upload/7/",
            "https://evil.example/",
            "//evil.example/x",
            "javascript:alert(1)",
        ],
    )

    assert result == ["/repository/upload/7/", "refused", "refused", "refused"]
