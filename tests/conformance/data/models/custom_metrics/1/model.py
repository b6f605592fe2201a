import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        self.cf = pb_utils.MetricFamily(name="custom_requests_total", description="a custom counter", kind=pb_utils.MetricFamily.COUNTER)
        self.gf = pb_utils.MetricFamily(name="custom_gauge", description="a custom gauge", kind=pb_utils.MetricFamily.GAUGE)
        self.c = self.cf.Metric(labels={"model": "custom_metrics", "version": "1"}); self.g = self.gf.Metric(labels={"kind": "g"})
    def execute(self, requests):
        self.c.increment(len(requests)); self.g.set(2.5)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy())]) for r in requests]
