import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(n, np.array([1],np.int32)) for n in ['alpha', 'b', 'OUT2', 'score', 'boxes', 'zeta', 'labels']]) for r in requests]
