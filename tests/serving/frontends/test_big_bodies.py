"""Large JSON bodies beside other requests: nobody waits for them but their own connection."""

from __future__ import annotations

import asyncio
import gzip
import json
import time

from tests.serving.frontends.process import ServerProcess
from tests.serving.frontends.raw_http import RawClient, message

COUNT = 1_500_000
INFER = "/v2/models/identity/infer"


def body_of(count: int, value: float = 0.125) -> bytes:
    data = [value] * count
    item = {"name": "INPUT0", "datatype": "FP32", "shape": [1, count], "data": data}
    return json.dumps({"inputs": [item]}).encode()


async def test_health_is_answered_while_a_large_body_is_decoded(served: ServerProcess):
    busy = await RawClient.connect(served.ports["HTTP"])
    other = await RawClient.connect(served.ports["HTTP"])
    waits: list[float] = []
    begin = time.perf_counter()
    answer = asyncio.create_task(busy.request("POST", INFER, body_of(COUNT)))
    while not answer.done():
        asked = time.perf_counter()
        assert (await other.request("GET", "/v2/health/live")).status == 200
        waits.append(time.perf_counter() - asked)
        await asyncio.sleep(0.001)
    took = time.perf_counter() - begin

    response = answer.result()
    assert response.status == 200
    assert response.json["outputs"][0]["data"][-1] == 0.125
    waits.sort()
    assert waits[len(waits) // 2] < took / 10
    await busy.close()
    await other.close()


async def test_pipelined_answers_keep_their_order(served: ServerProcess):
    client = await RawClient.connect(served.ports["HTTP"])
    await client.send(
        message("POST", INFER, body_of(200_000, 1))
        + message("GET", "/v2/health/live")
        + message("POST", INFER, body_of(2, 2))
        + message("POST", INFER, body_of(300_000, 3))
        + message("GET", "/v2")
    )

    answers = [await client.receive() for _ in range(5)]

    sizes = [item.json["outputs"][0]["shape"][1] for item in (answers[0], answers[2], answers[3])]
    assert sizes == [200_000, 2, 300_000]
    assert answers[1].body == b""
    assert answers[4].json["name"] == "triton"
    await client.close()


async def test_faults_of_large_bodies_are_400(served: ServerProcess):
    client = await RawClient.connect(served.ports["HTTP"])
    good = body_of(300_000)
    for bad in (good[:-1], good.replace(b"0.125]", b"true]"), good.replace(b"300000", b"3")):
        response = await client.request("POST", INFER, bad)
        assert response.status == 400, response.body[:200]
    assert (await client.request("POST", INFER, good)).status == 200
    await client.close()


async def test_a_small_body_that_inflates_to_a_large_one(served: ServerProcess):
    client = await RawClient.connect(served.ports["HTTP"])
    packed = gzip.compress(body_of(400_000))
    assert len(packed) < 64_000

    response = await client.request("POST", INFER, packed, Content_Encoding="gzip")

    assert response.json["outputs"][0]["shape"] == [1, 400_000]
    await client.close()
