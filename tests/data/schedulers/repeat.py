"""Decoupled: INPUT0 = n gives n answers 0, 1, ... and an empty end, MS milliseconds apart.

-1: an error; -2: one answer, then an error; -3: one answer that is the end itself; -4: an answer
"cancelled" when the request was cancelled within five seconds.
"""

import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def answer(request, number):
    tensor = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.full_like(tensor, number))])


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer_all, args=(request,), daemon=True).start()

    def answer_all(self, request):
        sender = request.get_response_sender()
        wanted = int(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy().reshape(-1)[0])
        pause = pb_utils.get_input_tensor_by_name(request, "MS")
        pause_s = 0 if pause is None else int(pause.as_numpy().reshape(-1)[0]) / 1000
        if wanted == -3:
            sender.send(answer(request, 0), flags=FINAL)
            return
        if wanted == -2:
            sender.send(answer(request, 0))
        if wanted in (-1, -2):
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("it broke off")))
        for number in range(wanted):
            time.sleep(pause_s)
            if sender.is_cancelled():
                break
            sender.send(answer(request, number))
        sender.send(flags=FINAL)
