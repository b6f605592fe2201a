"""Engine builds: ONNX models become TensorRT engines on a worker, as durable rows."""
