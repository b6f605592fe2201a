"""Iterative sequence: asks to be executed again until INPUT0 has come down to zero."""

import numpy as np
import triton_python_backend_utils as pb_utils


def value(request, name):
    return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0])


class TritonPythonModel:
    def initialize(self, args):
        self.left = {}

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            key = value(request, "CORRID")
            if value(request, "START"):
                self.left[key] = value(request, "INPUT0")
            self.left[key] -= 1
            tensor = pb_utils.Tensor("OUTPUT0", np.array([[self.left[key]]], np.int32))
            answer = pb_utils.InferenceResponse([tensor])
            if self.left[key] > 0:
                sender.send(answer)
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                sender.send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
