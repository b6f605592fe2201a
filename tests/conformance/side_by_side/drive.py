"""Sends a scenario's requests to one server, over gRPC, and notes what came back.

One event loop. Requests are put into queues one after the other: `queue` returns when the server
counts the request as pending, so that their order is certain without waiting for a time to pass.
A scenario whose blocker ended too early is `InconclusiveError` and is run again with longer sleeps.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

_TYPES = {"INT32": np.int32, "INT64": np.int64, "UINT32": np.uint32, "FP32": np.float32}
_QUEUED_S = 5.0
_ANSWER_S = 20.0
_PAUSE_S = 0.002


class InconclusiveError(Exception):
    """The machine was too slow for what the scenario wanted to see."""


@dataclass(frozen=True, slots=True)
class Server:
    """Addresses, host:port each."""

    http: str
    grpc: str
    metrics: str


@dataclass(slots=True, eq=False)
class Call:
    tag: str
    model: str
    sent_us: int
    work: asyncio.Task[None] | None = None
    handle: Any = None
    responses: list[dict[str, Any]] = field(default_factory=list)
    """Outputs by name, as lists."""
    code: str = ""
    message: str = ""
    ended_us: int = 0

    @property
    def is_done(self) -> bool:
        return self.ended_us > 0

    def cancel(self) -> None:
        self.handle.cancel()


class Drive:
    """A scenario's view of the server; `model` is asked where a call names no other."""

    def __init__(self, server: Server, model: str, patience: float = 1.0) -> None:
        self.server = server
        self.model = model
        self.patience = patience
        """Factor on all sleeps that give the driver time to act."""
        self.calls: list[Call] = []
        self._waiting: Counter[str] = Counter()
        self._sequences: dict[tuple[str, int | str], dict[str, Any]] = {}
        self._blocked_since: Call | None = None
        self._last_queued_us = 0
        self._outlasts_us = 0
        self._channel = grpc.aio.insecure_channel(server.grpc)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self) -> None:
        for call in self.calls:
            if call.work is not None and not call.work.done():
                call.work.cancel()
        await self._channel.close(None)

    # Requests

    def send(self, tag: str, *values: int, **options: Any) -> Call:
        """INPUT0 is [[ms, *values], ...]; options as in `message`."""
        call = self._call(tag, options)
        call.handle = self._stub.ModelInfer(self.message(tag, *values, **options))
        call.work = asyncio.ensure_future(self._unary(call))
        return call

    def stream(self, tag: str, **options: Any) -> Call:
        """The same on a stream of its own, which ends with the final answer."""
        call = self._call(tag, options)
        message = self.message(tag, **options)
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        call.handle = self._stub.ModelStreamInfer()
        call.work = asyncio.ensure_future(self._streamed(call, message))
        return call

    async def block(
        self, tag: str = "blocker", *, ms: int = 250, outlasts_ms: int = 0, **options: Any
    ) -> Call:
        """Keep an idle instance busy while the scenario fills the queue behind it.

        It must last `outlasts_ms` longer than the last `queue` took.
        """
        call = self.send(tag, ms=round(ms * self.patience), **options)
        self._blocked_since = call
        self._outlasts_us = outlasts_ms * 1000
        await self.sleep(0.05)
        return call

    async def queue(self, tag: str, *values: int, **options: Any) -> Call:
        """Send, and return when the request is in the queue behind a blocker."""
        call = self.send(tag, *values, **options)
        self._waiting[call.model] += 1
        await self.wait_for_pending(self._waiting[call.model], call.model)
        return call

    async def wait_for_pending(self, count: int, model: str = "") -> None:
        """Until that many requests to the model wait."""
        deadline = time.monotonic() + _QUEUED_S * self.patience
        while await self.pending(model) != count:
            blocker = self._blocked_since
            if time.monotonic() > deadline or (blocker is not None and blocker.is_done):
                raise InconclusiveError(f"{model or self.model}: not {count} pending requests")
            await asyncio.sleep(_PAUSE_S)
        self._waiting[model or self.model] = count
        self._last_queued_us = time.time_ns() // 1000

    async def pending(self, model: str = "") -> int:
        return int(sum((await self.metric("nv_inference_pending_request_count", model)).values()))

    def step(self, flags: str, key: int | str, value: int = 0, **options: Any) -> dict[str, Any]:
        """Options of one request of a sequence: "+" starts it, "-" ends it."""
        step = options | {"values": (value,), "sequence_id": key}
        step |= {"sequence_start": "+" in flags, "sequence_end": "-" in flags}
        place = (options.get("model") or self.model, key)
        if "-" in flags:
            self._sequences.pop(place, None)
        else:
            self._sequences[place] = step
        return step

    async def end_sequences(self) -> None:
        """End those that the scenario has left open, so that the next one finds free slots."""
        steps, self._sequences = list(self._sequences.values()), {}
        for step in steps:
            ending = step | {"ms": 0, "sequence_start": False, "sequence_end": True}
            ending.pop("timeout", None)
            await self.answers(self.send("end", **ending))
            self.calls.pop()

    async def metric(self, name: str, model: str = "") -> dict[str, float]:
        """Samples of one metric of a model by their labels."""
        label = f'model="{model or self.model}"'
        samples = re.findall(rf"^{name}{{(.*)}} (\S+)$", await self._metrics(), re.MULTILINE)
        return {labels: float(value) for labels, value in samples if label in labels}

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.patience)

    async def answers(self, *calls: Call) -> None:
        """Until these, or all, have their final answer; whoever gets none is UNANSWERED."""
        waiting = {call.work: call for call in calls or self.calls if call.work is not None}
        _, late = await asyncio.wait(waiting, timeout=_ANSWER_S)
        for work in late:
            waiting[work].cancel()
            await work
            waiting[work].code = "UNANSWERED"

    def still_blocked(self) -> None:
        """Raises: InconclusiveError when the blocker is done already."""
        if self._blocked_since is None or self._blocked_since.is_done:
            raise InconclusiveError("the blocker ended early")

    def early(self) -> list[str]:
        """Tags of what was answered while the blocker was still being executed."""
        blocker = self._blocked_since
        if blocker is None or not blocker.responses:
            return []
        end_us = np.array(blocker.responses[0]["RAN"]).reshape(-1)[-1]
        return sorted(call.tag for call in self.calls if call.ended_us < end_us)

    def check(self) -> None:
        """Raises: InconclusiveError when the blocker did not block as long as it should."""
        blocker = self._blocked_since
        if blocker is None or not blocker.responses:
            return
        row = np.array(blocker.responses[0]["RAN"]).reshape(-1)
        others = [call.sent_us for call in self.calls if call.sent_us > blocker.sent_us]
        if others and min(others) < row[-2]:
            raise InconclusiveError("the blocker started late")
        if row[-1] < self._last_queued_us + self._outlasts_us:
            raise InconclusiveError("the blocker ended early")

    # What is sent

    def message(
        self,
        tag: str,
        *more: int,
        values: tuple[int, ...] = (),
        ms: int = 0,
        model: str = "",
        rows: int = 1,
        is_batched: bool = True,
        inputs: dict[str, tuple[Any, ...]] | None = None,
        outputs: tuple[str, ...] = (),
        **parameters: Any,
    ) -> Any:
        """`inputs` replaces INPUT0: name -> (type, nested list) or (type, shape, bytes).
        `is_batched`: with a batch axis. `parameters`: sequence_id, priority, timeout, ..."""
        request = service_pb2.ModelInferRequest(model_name=model or self.model, id=tag)
        if inputs is None:
            row = [ms, *(values or more or (0,))]
            inputs = {"INPUT0": ("INT32", [row] * rows if is_batched else row)}
        for name, (datatype, *data) in inputs.items():
            if len(data) == 1:
                array = np.array(data[0], _TYPES[datatype])
                data = [array.shape, array.tobytes()]
            request.inputs.add(name=name, datatype=datatype, shape=data[0])
            request.raw_input_contents.append(data[1])
        for name in outputs:
            request.outputs.add(name=name)
        for name, value in parameters.items():
            kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
            setattr(request.parameters[name], kind, value)
        return request

    def _call(self, tag: str, options: dict[str, Any]) -> Call:
        call = Call(tag, options.get("model") or self.model, time.time_ns() // 1000)
        self.calls.append(call)
        return call

    # What comes back

    async def _unary(self, call: Call) -> None:
        try:
            call.responses.append(_outputs(await call.handle))
        except grpc.aio.AioRpcError as error:
            call.code, call.message = error.code().name, error.details() or ""
        except asyncio.CancelledError:
            call.code = "CANCELLED"
        self._end(call)

    async def _streamed(self, call: Call, message: Any) -> None:
        try:
            await call.handle.write(message)
            async for answer in call.handle:
                if answer.error_message:
                    call.code, call.message = "STREAM", answer.error_message
                elif answer.infer_response.outputs:
                    call.responses.append(_outputs(answer.infer_response))
                final = answer.infer_response.parameters["triton_final_response"].bool_param
                if final or (answer.error_message and not call.responses):
                    break
            await call.handle.done_writing()
            async for _ in call.handle:
                pass
        except grpc.aio.AioRpcError as error:
            call.code, call.message = error.code().name, error.details() or ""
        except asyncio.CancelledError:
            call.code = "CANCELLED"
        self._end(call)

    def _end(self, call: Call) -> None:
        call.ended_us = time.time_ns() // 1000

    async def statistics(self, model: str) -> Any:
        answer = await self._stub.ModelStatistics(
            service_pb2.ModelStatisticsRequest(name=model), timeout=_ANSWER_S
        )
        return answer.model_stats[0]

    async def _metrics(self) -> str:
        def read() -> str:
            with urllib.request.urlopen(f"http://{self.server.metrics}/metrics") as answer:
                return str(answer.read().decode())

        return await asyncio.to_thread(read)


def _outputs(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    raw = itertools.chain(response.raw_output_contents, itertools.repeat(b""))
    for output, content in zip(response.outputs, raw, strict=False):
        if output.datatype == "BYTES":
            found[output.name] = _texts(content)
        else:
            array = np.frombuffer(content, _TYPES[output.datatype])
            found[output.name] = array.reshape(output.shape).tolist()
    return found


def _texts(content: bytes) -> list[str]:
    texts = []
    while content:
        size = int.from_bytes(content[:4], "little")
        texts.append(content[4 : 4 + size].decode())
        content = content[4 + size :]
    return texts
