"""Runs the console's JavaScript modules in a real Chromium, from files served as they are."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.console.chromium import chromium
from tests.page import visit

STATIC = Path(__file__).resolve().parents[3] / "static"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>modules</title><body>")
        else:
            super().do_GET()


@contextmanager
def static_server() -> Iterator[str]:
    handler = partial(QuietHandler, directory=str(STATIC))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def module_page() -> Iterator[Modules]:
    with static_server() as address, chromium() as browser:
        page = browser.new_page()
        visit(page, address)
        yield Modules(page)


class Modules:
    """`modules.run("kserve.js", "m.toHalf(given)", 1.5)`: an expression over one module."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def run(self, module: str, expression: str, given: Any = None) -> Any:
        script = f"""async (given) => {{
            const m = await import("/js/{module}");
            const plain = (value) =>
                value instanceof Uint8Array ? btoa(String.fromCharCode(...value))
                : ArrayBuffer.isView(value) ? Array.from(value, Number)
                : value;
            return JSON.stringify(plain(await ({expression})));
        }}"""
        text = self.page.evaluate(script, given)
        return json.loads(text) if text is not None else None

    def run_bytes(self, module: str, expression: str, given: Any = None) -> bytes:
        return base64.b64decode(self.run(module, expression, given))
