import numpy as np, time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            k = pb_utils.get_input_tensor_by_name(r, "WHICH").as_numpy().reshape(-1)[0].decode()
            outs = [pb_utils.Tensor("OUTPUT%s" % c, np.array([("v" + c).encode()], dtype=object)) for c in k if c in "012"]
            out.append(pb_utils.InferenceResponse(outs))
        return out
