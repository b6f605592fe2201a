"""Implicit state: gives back the state it got, and state + value as the new one."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            state = pb_utils.get_input_tensor_by_name(request, "STATE_IN")
            before = np.full((1, 1), -1000, np.int32) if state is None else state.as_numpy()
            after = (before + value[:, 1:]).astype(np.int32)
            outputs = {"OUTPUT0": before, "STATE_OUT": after}
            answers.append(
                pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in outputs.items()])
            )
        return answers
