"""SUM and DIFFERENCE of A and B after the milliseconds of the parameter `ms`; a part of ensembles.

B may be left out (0 then). A of 13 fails; A of 14 leaves SUM out of the answer.
"""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.pause_s = int(parameters.get("ms", {}).get("string_value", "0")) / 1000

    def execute(self, requests):
        time.sleep(self.pause_s)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        left = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
        right = pb_utils.get_input_tensor_by_name(request, "B")
        right = np.zeros_like(left) if right is None else right.as_numpy()
        if left.reshape(-1)[0] == 13:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("thirteen is refused"))
        outputs = {"SUM": left + right, "DIFFERENCE": left - right}
        if left.reshape(-1)[0] == 14:
            del outputs["SUM"]
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in outputs.items()]
        )
