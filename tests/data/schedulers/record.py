"""Answers with how it was executed. Rows of INPUT0 are (milliseconds to sleep, value, ...).

RAN, for each row: instance, number of the execution, place in it, requests in it, inputs of this
request, start and end in microseconds. A value of -1 fails its request, -2 the whole execution;
-3 makes the list of answers one too short.
"""

import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.executions = 0

    def execute(self, requests):
        start_us = time.time_ns() // 1000
        self.executions += 1
        tensors = [pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy() for r in requests]
        firsts = [t.reshape(-1)[:2] if t.size else np.zeros(2, np.int32) for t in tensors]
        time.sleep(max(int(first[0]) for first in firsts) / 1000)
        values = [int(first[1]) if first.size > 1 else 0 for first in firsts]
        if -2 in values:
            raise RuntimeError("the whole execution fails")
        end_us = time.time_ns() // 1000
        answers = []
        for place, (request, tensor) in enumerate(zip(requests, tensors, strict=True)):
            if values[place] == -1:
                error = pb_utils.TritonError("this request alone fails")
                answers.append(pb_utils.InferenceResponse(error=error))
                continue
            ran = [os.getpid(), self.executions, place, len(requests), len(request.inputs())]
            row = np.array([*ran, start_us, end_us], np.int64)
            rows = row if tensor.ndim == 1 else np.tile(row, (tensor.shape[0], 1))
            outputs = [pb_utils.Tensor("RAN", rows), pb_utils.Tensor("OUTPUT0", tensor)]
            answers.append(pb_utils.InferenceResponse(outputs))
        if -3 in values:
            answers.pop()
        return answers
