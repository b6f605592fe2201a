"""The TensorRT backend: engines of TensorRT and of TensorRT-RTX on NVIDIA GPUs.

`backend` is the entry. Everything up to the device is pure (`options`, `profiles`,
`graphs`, `signature`); `library` imports the runtime, `cuda_runtime` talks to the driver, `engine`
holds what lives on a device, `instance` runs batches. `build` makes engines out of ONNX files.
"""
