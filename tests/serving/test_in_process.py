"""The server inside a program, as a notebook uses it. CLI-173."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import serving
from serving.errors import InvalidArgumentError, NotFoundError, UnavailableError
from serving.in_process import ModelServer
from serving.options import FrontendOptions
from tests.serving.model_files import write_identity
from tests.waiting import wait_until_blocking

GUIDE = Path(__file__).parents[2] / "docs/guides/in-process.md"
ONES = np.ones((1, 4), np.float32)


def _identity(root: Path, name: str, kind: str) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(
        f'backend: "identity"\n'
        f'input {{ name: "IN" data_type: TYPE_{kind} dims: [-1] }}\n'
        f'output {{ name: "OUT" data_type: TYPE_{kind} dims: [-1] }}\n'
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    root = tmp_path_factory.mktemp("models")
    write_identity(root, "m", versions=(1, 2), extra="version_policy { all { } }\n")
    write_identity(root, "slow", delay_ms=5000)
    for kind in ("STRING", "INT8", "BOOL"):
        _identity(root, kind.lower(), kind)
    with ModelServer(root, exit_timeout_secs=0.2) as server:
        for name in ("m", "slow", "string", "int8", "bool"):
            server.load(name)
        yield server


def test_the_guide_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of Python in the guide runs, in order, as in the cells of a notebook."""
    monkeypatch.chdir(tmp_path)
    blocks = GUIDE.read_text().split("```python\n")[1:]
    names: dict[str, Any] = {}

    async def run_all() -> None:
        for block in blocks:
            source = block.partition("```")[0]
            code = compile(source, str(GUIDE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result

    asyncio.run(run_all())

    assert len(blocks) >= 5
    assert not names["server"].is_live()


def test_the_names_of_the_package_are_there_on_first_use() -> None:
    assert serving.ModelServer is ModelServer
    assert serving.FrontendOptions is FrontendOptions
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        serving.Nothing  # noqa: B018


def test_infer_gives_arrays_that_are_the_callers_own(server: ModelServer) -> None:
    answer = server.infer("m", {"INPUT0": ONES}, request_id="7", outputs=["OUTPUT0"])

    assert (answer.model_name, answer.model_version, answer.id) == ("m", 2, "7")
    assert dict(answer).keys() == {"OUTPUT0"}
    answer["OUTPUT0"][0, 0] = 5  # writable, and nobody else's
    assert ONES[0, 0] == 1


def test_lists_take_the_type_of_the_model_and_arrays_keep_theirs(server: ModelServer) -> None:
    assert server.infer("int8", {"IN": [1, -2]})["OUT"].dtype == np.int8
    assert server.infer("m", {"INPUT0": [[1, 2, 3, 4]]})["OUTPUT0"].dtype == np.float32
    assert server.infer("bool", {"IN": [True]})["OUT"].tolist() == [True]
    assert server.infer("string", {"IN": ["ä", b"\0"]})["OUT"].tolist() == ["ä".encode(), b"\0"]
    assert server.infer("string", {"IN": np.array(["x"])})["OUT"].tolist() == [b"x"]
    with pytest.raises(InvalidArgumentError, match="FP64"):
        server.infer("m", {"INPUT0": ONES.astype(np.float64)})


@pytest.mark.parametrize(
    ("model", "value", "words"),
    [
        ("int8", [300], "holds values that datatype INT8 cannot"),
        ("int8", [1.5], "holds values that datatype INT8 cannot"),
        ("bool", [1], "holds values that datatype BOOL cannot"),
        ("string", [1], "holds values that datatype BYTES cannot"),
        ("int8", [[1], [1, 2]], "cannot be made an array"),
        ("string", [object()], "neither text nor bytes"),
        ("int8", np.ones(1, np.complex64), "is an array of complex64"),
        ("int8", ["x"], "BYTES"),
    ],
)
def test_what_is_no_tensor_says_so(
    server: ModelServer, model: str, value: object, words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        server.infer(model, {"IN": value})


def test_other_memory_comes_by_dlpack(server: ModelServer) -> None:
    class Foreign:
        def __dlpack__(self, **more: Any) -> Any:
            return ONES.__dlpack__(**more)

        def __dlpack_device__(self) -> Any:
            return ONES.__dlpack_device__()

    assert server.infer("m", {"INPUT0": Foreign()})["OUTPUT0"].tolist() == ONES.tolist()


def test_unknown_options_and_models(server: ModelServer) -> None:
    with pytest.raises(TypeError, match="a request has no option color; known are outputs"):
        server.infer("m", {}, color="red")  # type: ignore[call-arg]
    with pytest.raises(NotFoundError):
        server.infer("nope", {})
    with pytest.raises(NotFoundError):
        list(server.stream("nope", {}))
    with pytest.raises(NotFoundError):
        server.model("nope")
    with pytest.raises(InvalidArgumentError, match="there is no directory 'nope'"):
        server.load("nope")
    with pytest.raises(TypeError, match="no_such_option"):
        ModelServer(".", no_such_option=1)


def test_many_requests_at_once(server: ModelServer) -> None:
    model = server.model("m")
    answers = [model.submit({"INPUT0": ONES * n}) for n in range(200)]

    assert [answer.result(10)["OUTPUT0"][0, 0] for answer in answers] == list(range(200))


async def test_async_calls_of_the_callers_own_loop(server: ModelServer) -> None:
    model = server.model("m", 1)
    answers = await asyncio.gather(*(model.async_infer({"INPUT0": ONES}) for _ in range(10)))
    assert {answer.model_version for answer in answers} == {1}
    streamed = [answer async for answer in server.async_stream("m", {"INPUT0": ONES})]
    assert len(streamed) == 1
    with pytest.raises(NotFoundError):
        await server.async_infer("nope", {})


async def test_cancelling_cancels_the_request(server: ModelServer) -> None:
    def failures() -> int:
        return int(server.statistics("slow")[0]["inference_stats"]["fail"]["count"])

    before = failures()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await server.async_infer("slow", {"INPUT0": ONES})
    queued = server.model("slow").submit({"INPUT0": ONES})
    assert server.is_ready()  # it has been sent by now
    assert queued.cancel()
    async with server.async_stream("slow", {"INPUT0": ONES}):
        pass
    with server.stream("slow", {"INPUT0": ONES}) as answers:
        answers.close()
        assert list(answers) == []
    # The first one has begun and goes on; those that waited are gone at once.
    await asyncio.to_thread(wait_until_blocking, lambda: failures() >= before + 3)


def test_what_the_server_tells_of_itself_and_its_models(server: ModelServer) -> None:
    model = server.model("m")
    assert server.is_live()
    assert server.is_ready()
    assert server.metadata()["name"] == "triton"
    assert model.metadata()["versions"] == ["1", "2"]
    assert model.config()["max_batch_size"] == 8
    assert model.is_ready()
    assert not serving.Model(server, "nope").is_ready()
    assert [row["version"] for row in server.statistics("m")] == ["1", "2"]
    assert ("m", 2) in [(row.name, row.version) for row in server.models(ready=True)]
    server.load("int8", versions=[1])
    server.unload("int8")
    assert not serving.Model(server, "int8").is_ready()
    server.load("int8")


def test_a_server_can_be_stopped_and_started_again(tmp_path: Path) -> None:
    write_identity(tmp_path, "m")
    ports = FrontendOptions(http_port=0, allow_grpc=False, allow_metrics=False)
    server = ModelServer([tmp_path], model_control_mode="none", frontends=ports)
    assert not server.is_live()
    assert not server.is_ready()
    with pytest.raises(UnavailableError, match="call start"):
        server.infer("m", {"INPUT0": ONES})
    for _ in range(2):
        with server:
            assert server.ports.http
            assert server.infer("m", {"INPUT0": ONES})["OUTPUT0"].tolist() == ONES.tolist()
            with pytest.raises(InvalidArgumentError, match="stop it first"):
                server.start()
    server.stop()
