"""Sums up the values of each sequence. INPUT0 is (milliseconds to sleep, value).

SEEN tells the control inputs as they came: START, END, READY (-9 where there is none); ID is the
correlation id; RAN is as in record.py. A place whose READY is false gives a dummy answer.
"""

import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def control(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().reshape(-1)[0]


class TritonPythonModel:
    def initialize(self, args):
        self.executions = 0
        self.sums = {}

    def execute(self, requests):
        start_us = time.time_ns() // 1000
        self.executions += 1
        tensors = [pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy() for r in requests]
        is_ready = [control(r, "READY") in (None, True, 1) for r in requests]
        waits = [int(t.reshape(-1)[0]) for t, ready in zip(tensors, is_ready, strict=True) if ready]
        time.sleep(max(waits, default=0) / 1000)
        end_us = time.time_ns() // 1000
        answers = []
        for place, (request, tensor) in enumerate(zip(requests, tensors, strict=True)):
            ran = [os.getpid(), self.executions, place, len(requests), len(request.inputs())]
            answers.append(self.answer(request, tensor, is_ready[place], [*ran, start_us, end_us]))
        return answers

    def answer(self, request, tensor, is_ready, ran):
        key = control(request, "CORRID")
        key = request.correlation_id() if key is None else key
        key = key.decode() if isinstance(key, bytes) else str(key)
        if is_ready and self.sums.get(key) is None or control(request, "START") in (1, True):
            self.sums[key] = 0
        if is_ready:
            self.sums[key] += int(tensor.reshape(-1)[1])
        names = ("START", "END", "READY")
        found = [control(request, name) for name in names]
        seen = np.array([-9 if value is None else int(value) for value in found], np.int32)
        total = np.array([self.sums.get(key, 0)], np.int32)
        identity = np.array([key.encode()], np.object_)
        lead = () if tensor.ndim == 1 else (1,)
        named = {"SUM": total, "SEEN": seen, "ID": identity, "RAN": np.array(ran, np.int64)}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array.reshape(*lead, -1)) for name, array in named.items()]
        )
