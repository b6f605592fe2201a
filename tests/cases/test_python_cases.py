"""Reports about Python models and their processes: C50, C56."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ServingError
from tests.serving.backends.python.serving_models import ask_server, served, source_of
from tests.serving.instance.python_models import ask, context_for, hosted, output, request

FAIL_ONE = """
answers = []
for r in requests:
    value = value_in(r)[0]
    if value == -100:
        raise RuntimeError("all of you")
    if value < 0:
        answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(f"not {value}")))
    else:
        answers.append(array_ok(value_in(r)))
return answers[: self.keep] if hasattr(self, "keep") else answers
"""


def requests(*values: float) -> list:
    return [request(np.array([value], np.float32)) for value in values]


async def test_c50_one_bad_apple_fails_alone_and_an_exception_fails_the_batch(tmp_path: Path):
    async with hosted(context_for(tmp_path, source_of(FAIL_ONE))) as host:
        responses = await ask(host, *requests(1, -2, 3, 4))
        assert [item.error is None for item in responses] == [True, False, True, True]
        assert responses[1].error is not None
        assert responses[1].error.message == "not -2.0"

        for response in await ask(host, *requests(1, 2, -100, 4)):
            assert response.error is not None
            assert "all of you" in response.error.message

        responses = await ask(host, *requests(1, 2))
        assert [float(output(item)[0]) for item in responses] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("returned", "told"),
    [("[ok()]", "2 request(s), 1 response(s)"), ("[ok(), None]", "the list holds None")],
)
async def test_c50_a_list_that_does_not_fit_fails_all_with_an_explanation(
    tmp_path: Path, returned: str, told: str
):
    async with hosted(context_for(tmp_path, source_of(f"return {returned}"))) as host:
        for response in await ask(host, *requests(1, 2)):
            assert response.error is not None
            assert told in response.error.message


async def test_c56_the_parent_never_imports_what_the_model_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    runtime = tmp_path / "path" / "cuda_runtime_stub.py"
    runtime.parent.mkdir()
    runtime.write_text(
        f"import os\nif os.getpid() == {__import__('os').getpid()}:\n"
        "    raise ImportError('in the parent')\nVALUE = 5.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(runtime.parent))
    body = "return [ok(cuda_runtime_stub.VALUE)]"
    source = "import cuda_runtime_stub\n" + source_of(body)
    hook = "    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
    async with served(tmp_path / "models", {"m": source + hook}) as server:
        assert await ask_server(server, "m") == [5.0]

    assert "cuda_runtime_stub" not in sys.modules


async def test_c56_an_import_that_fails_in_the_child_is_a_reason_of_the_load(tmp_path: Path):
    source = "import cuda_runtime_that_is_not_there\n" + source_of("return [ok()]")
    with pytest.raises(ServingError, match="No module named 'cuda_runtime_that_is_not_there'"):
        async with served(tmp_path / "models", {"m": source}):
            pass
