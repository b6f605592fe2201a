"""What a Python model may return from execute, and what its requests hear when it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.errors import ErrorCode, FailureReason
from serving.response import InferenceResponse
from tests.serving.instance.python_models import (
    CONFIG,
    Execution,
    ask,
    ask_one,
    context_for,
    hosted,
    output,
    request,
)

DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }"
TWO_OUTPUTS = CONFIG + 'output { name: "MORE" data_type: TYPE_INT32 dims: [1] }'


def model(body: str, extra: str = "") -> str:
    """A model whose execute is `body`; `ok()` makes a good response."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    return f"""import threading
import numpy as np
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL

def ok(value=1.0):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.float32))])

class TritonPythonModel:
    def execute(self, requests):
{lines}
{extra}
"""


async def answers(directory: Path, body: str, count: int = 1) -> list[InferenceResponse]:
    async with hosted(context_for(directory, model(body))) as host:
        return await ask(host, *(request() for _ in range(count)))


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
        r.requested_output_names(), [t.name() for t in r.inputs()], r.is_cancelled()]
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


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("pb_utils.MetricFamily('n', 'd', pb_utils.MetricFamily.COUNTER)", "custom metric"),
        ("pb_utils.load_model('x')", "load_model"),
        (
            "pb_utils.InferenceRequest(model_name='x', requested_output_names=['o'],"
            " inputs=[]).exec()",
            "InferenceRequest.exec",
        ),
        ("requests[0].set_release_flags(2)", "rescheduling"),
    ],
)
async def test_what_this_release_lacks_says_so_when_it_is_used(
    tmp_path: Path, call: str, told: str
):
    (response,) = await answers(tmp_path, f"{call}\nreturn [ok()]")

    assert response.error is not None
    assert told in response.error.message
    assert "is not supported by this release of Conch" in response.error.message


async def test_a_sender_answers_in_the_place_of_the_list(tmp_path: Path):
    body = """
sender = requests[0].get_response_sender()
sender.send(ok(3.0))
sender.send(flags=FINAL)
return None
"""
    (response,) = await answers(tmp_path, body)

    assert output(response)[0] == 3
    assert response.is_final


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ("s.send()", "it is needed when flags are 0"),
        ("s.send(ok(), flags=2)", "flags must be 0 or"),
        ("s.send(5)", "expected an InferenceResponse, not int"),
        ("s.send(flags=FINAL)", "sends a response before the final flag"),
        ("s.send(ok()); s.send(ok())", "sends one response only"),
    ],
)
async def test_a_misused_sender_raises_in_the_model(tmp_path: Path, calls: str, told: str):
    body = f"""
s = requests[0].get_response_sender()
try:
    {calls}
except pb_utils.TritonModelException as error:
    return [pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))]
"""
    (response,) = await answers(tmp_path, body)

    assert response.error is not None
    # The list comes after a response that a sender holds: that is refused as well.
    assert told in response.error.message or "in the list as well" in response.error.message


async def test_a_closed_sender_stays_closed_and_the_first_answer_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    body = """
s = requests[0].get_response_sender()
s.send(ok(3.0), flags=FINAL)
try:
    s.send(ok(4.0))
except pb_utils.TritonModelException as error:
    pb_utils.Logger.log_warn(str(error))
return [None]
"""
    (response,) = await answers(tmp_path, body)

    assert output(response)[0] == 3
    assert "the response sender is closed" in caplog.text


async def test_a_decoupled_model_answers_many_times_also_after_execute(tmp_path: Path):
    body = """
def later(sender):
    for value in range(3):
        sender.send(ok(float(value)))
    sender.send(flags=FINAL)
for r in requests:
    threading.Thread(target=later, args=(r.get_response_sender(),)).start()
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        execution = Execution([request(), request()]).start(host)
        last = await execution.finish()

    for had in execution.responses.values():
        assert [item.outputs[0].array[0] for item in had[:-1]] == [0, 1, 2]
    assert all(item.is_final and item.is_null and not item.outputs for item in last)


async def test_a_decoupled_model_hears_that_its_caller_went_away(tmp_path: Path):
    body = """
def later(sender):
    sender.send(ok())
    while not sender.is_cancelled():
        pass
    sender.send(flags=FINAL)
for r in requests:
    threading.Thread(target=later, args=(r.get_response_sender(),)).start()
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        asked = request()
        execution = Execution([asked]).start(host)
        await execution.done
        asked.cancel()

        (response,) = await execution.finish()
    assert response.is_final


async def test_a_decoupled_model_must_not_return_a_list(tmp_path: Path):
    async with hosted(context_for(tmp_path, model("return [ok()]"), DECOUPLED)) as host:
        response = await ask_one(host)

    assert response.error is not None
    assert "a decoupled model must return None" in response.error.message


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


async def test_a_late_answer_of_a_request_that_has_failed_is_dropped(tmp_path: Path):
    body = """
def later(sender):
    while True:
        try:
            sender.send(ok())
        except Exception:
            return
threading.Thread(target=later, args=(requests[0].get_response_sender(),)).start()
raise ValueError("after all")
"""
    async with hosted(context_for(tmp_path, model(body), DECOUPLED)) as host:
        pid = host.pid
        for _ in range(5):
            (last,) = await Execution([request()]).start(host).finish()
            assert last.error is not None

        assert host.pid == pid
