"""What a Python model may return from execute, and what its requests hear when it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.errors import ErrorCode, FailureReason
from tests.serving.backends.python.writing import answers, model
from tests.serving.instance.python_models import (
    CONFIG,
    ask_one,
    context_for,
    hosted,
    output,
)

TWO_OUTPUTS = CONFIG + 'output { name: "MORE" data_type: TYPE_INT32 dims: [1] }'


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return None", "found type 'NoneType'"),
        ("return 5", "found type 'int'"),
        ("return ok()", "found type 'InferenceResponse'"),
        ("return []", "2 request(s), 0 response(s)"),
        ("return [ok()] * 3", "2 request(s), 3 response(s)"),
        ("return [ok(), None]", "the list holds None"),
        ("return [ok(), 'x']", "found type 'str'"),
        ("raise ValueError('boom')", "ValueError: boom\n\nAt:\n  1/model.py(11): execute"),
        ("raise pb_utils.TritonModelException('mine')", "TritonModelException: mine"),
        ("return [pb_utils.InferenceResponse([1])]", "must hold pb_utils.Tensor objects"),
    ],
)
async def test_a_broken_execute_fails_every_request_of_the_batch_with_the_cause(
    tmp_path: Path, body: str, told: str
):
    for response in await answers(tmp_path, body, 2):
        assert response.error is not None
        assert response.error.code is ErrorCode.INTERNAL
        assert response.error.failure_reason is FailureReason.BACKEND
        assert "model instance 'm_0_0'" in response.error.message
        assert told in response.error.message


async def test_the_text_of_an_endless_recursion_is_bounded(tmp_path: Path):
    extra = "    def again(self, n):\n        return self.again('x' * 100 + n)"
    async with hosted(context_for(tmp_path, model("self.again('')", extra))) as host:
        response = await ask_one(host)

    assert response.error is not None
    assert "RecursionError" in response.error.message
    assert len(response.error.message) < 10_000


async def test_one_request_can_fail_alone(tmp_path: Path):
    body = "return [ok(), pb_utils.InferenceResponse(error=pb_utils.TritonError('not you'))]"

    served, refused = await answers(tmp_path, body, 2)

    assert served.error is None
    assert refused.error is not None
    assert refused.error.message == "not you"
    assert refused.error.code is ErrorCode.INTERNAL


@pytest.mark.parametrize("code", [code.name for code in ErrorCode])
async def test_an_error_keeps_its_code(tmp_path: Path, code: str):
    error = f"pb_utils.TritonError('text', pb_utils.TritonError.{code})"

    (response,) = await answers(tmp_path, f"return [pb_utils.InferenceResponse(error={error})]")

    assert response.error is not None
    assert response.error.code is ErrorCode[code]


async def test_an_error_wins_over_outputs_that_come_with_it(tmp_path: Path):
    body = "return [pb_utils.InferenceResponse(ok().output_tensors(), pb_utils.TritonError('no'))]"

    (response,) = await answers(tmp_path, body)

    assert response.error is not None
    assert response.outputs == []


async def test_outputs_that_nobody_asked_for_are_left_out(tmp_path: Path):
    body = """
more = pb_utils.Tensor("MORE", np.array([7], np.int32))
return [pb_utils.InferenceResponse([*ok().output_tensors(), more])]
"""
    async with hosted(context_for(tmp_path, model(body), TWO_OUTPUTS)) as host:
        everything = await ask_one(host)
        chosen = await ask_one(host, outputs=["MORE"])

    assert [item.name for item in everything.outputs] == ["OUT", "MORE"]
    assert [item.name for item in chosen.outputs] == ["MORE"]


async def test_response_parameters_keep_their_types(tmp_path: Path):
    body = (
        "return [pb_utils.InferenceResponse([], parameters={'s': 'x', 'i': 7, 'b': True, 'f': .5})]"
    )

    (response,) = await answers(tmp_path, body)

    assert response.parameters == {"s": "x", "i": 7, "b": True, "f": 0.5}


async def test_a_request_shows_all_that_the_client_sent(tmp_path: Path):
    body = """
import json
r = requests[0]
told = [r.request_id(), r.correlation_id(), r.flags(), r.timeout(), r.parameters(),
        sorted(r.requested_output_names()), [t.name() for t in r.inputs()], r.is_cancelled()]
out = pb_utils.Tensor("OUT", np.array([json.dumps(told)], dtype=object))
return [pb_utils.InferenceResponse([out])]
"""
    async with hosted(context_for(tmp_path, model(body))) as host:
        response = await ask_one(
            host,
            id="r1",
            correlation_id="c",
            sequence_start=True,
            sequence_end=True,
            timeout_us=9,
            parameters={"a": 1, "ü": "é"},
        )

    text = '["r1", "c", 3, 9, "{\\"a\\":1,\\"\\u00fc\\":\\"\\u00e9\\"}", ["OUT"], ["IN"], false]'
    assert output(response)[0].decode() == text


async def test_an_absent_optional_input_is_none(tmp_path: Path):
    body = """
absent = pb_utils.get_input_tensor_by_name(requests[0], "OTHER")
return [ok(float(absent is None))]
"""
    (response,) = await answers(tmp_path, body)

    assert output(response)[0] == 1


async def test_execute_may_be_a_coroutine(tmp_path: Path):
    source = model("return [ok(2.0)]").replace("def execute", "async def execute")

    async with hosted(context_for(tmp_path, source)) as host:
        twice = [output(await ask_one(host))[0] for _ in range(2)]

    assert twice == [2, 2]


async def test_files_beside_the_model_can_be_imported(tmp_path: Path):
    source = model("import near\nfrom .package.deep import VALUE\nreturn [ok(near.ONE + VALUE)]")
    context = context_for(tmp_path, source, others={"near.py": "ONE = 1"})
    (context.version_directory / "package").mkdir()
    (context.version_directory / "package" / "deep.py").write_text("VALUE = 41")

    async with hosted(context) as host:
        got = output(await ask_one(host))

    assert got[0] == 42


async def test_initialize_gets_strings_about_the_instance(tmp_path: Path):
    source = model(
        "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', self.told)])]",
        """
    def initialize(self, args):
        import json
        assert json.loads(args.pop("model_config"))["input"][0]["dims"] == [-1]
        assert pb_utils.get_model_dir().endswith("m/1")
        self.told = np.array([json.dumps(args, sort_keys=True)], dtype=object)
""",
    )
    context = context_for(tmp_path, source)

    async with hosted(context) as host:
        told = output(await ask_one(host))[0].decode()

    assert f'"model_repository": "{context.model_directory}"' in told
    for part in (
        '"model_instance_device_id": "0"',
        '"model_instance_kind": "CPU"',
        '"model_instance_name": "m_0_0"',
        '"model_name": "m"',
        '"model_version": "1"',
    ):
        assert part in told


async def test_bfloat16_goes_through_dlpack(tmp_path: Path):
    import ml_dtypes

    body = """
tensor = requests[0].inputs()[0]
try:
    tensor.as_numpy()
except pb_utils.TritonModelException as error:
    assert "to_dlpack" in str(error)
return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", tensor.to_dlpack())])]
"""
    sent = np.array([1.5, -2.0], ml_dtypes.bfloat16)

    async with hosted(context_for(tmp_path, model(body))) as host:
        got = output(await ask_one(host, sent))

    assert got.dtype == sent.dtype
    assert got.tolist() == sent.tolist()


async def test_a_response_that_cannot_be_sent_fails_alone(tmp_path: Path):
    body = """
class Broken:
    def __str__(self):
        raise ValueError("no text")
broken = pb_utils.Tensor("OUT", np.array([Broken()], dtype=object))
return [pb_utils.InferenceResponse([broken]), ok()]
"""
    refused, served = await answers(tmp_path, body, 2)

    assert refused.error is not None
    assert "a response that cannot be sent" in refused.error.message
    assert "ValueError: no text" in refused.error.message
    assert served.error is None


async def test_a_model_may_compute_in_processes_of_its_own(tmp_path: Path):
    source = """
import multiprocessing
import numpy as np
import triton_python_backend_utils as pb_utils

def double(value):
    return pb_utils.Tensor("T", np.array([value * 2], np.float32)).as_numpy()[0]

class TritonPythonModel:
    def initialize(self, args):
        self.pool = multiprocessing.get_context("spawn").Pool(1)

    def execute(self, requests):
        values = [self.pool.apply(double, (float(r.inputs()[0].as_numpy()[0]),)) for r in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.float32))])
            for value in values
        ]

    def finalize(self):
        self.pool.terminate()
        self.pool.join()
"""
    async with hosted(context_for(tmp_path, source)) as host:
        got = output(await ask_one(host, np.array([21], np.float32)))

    assert got[0] == 42
