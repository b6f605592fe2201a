"""An OpenVINO or ONNX file as the openvino backend gives it to requests (OV-01).

Pure functions; any thread.
"""

from __future__ import annotations

from dataclasses import replace

from serving.config.protobuf import pb
from serving.config.signature import Signature, TensorSignature

_YES = ("yes", "true", "1")


def as_reshaped(signature: Signature, config: pb.ModelConfig) -> Signature:
    """With the batch size, and the dims, that the backend gives the model for this config."""
    takes_dims = _flag(config, "RESHAPE_IO_LAYERS")
    keeps_size = _flag(config, "SKIP_OV_DYNAMIC_BATCHSIZE")

    def reshaped(tensor: TensorSignature) -> TensorSignature:
        shape = tensor.shape
        if takes_dims:
            shape = (*shape[:1], *(-1 for _ in shape[1:]))
        if config.max_batch_size > 0 and shape:
            fits = not keeps_size or shape[0] == config.max_batch_size
            shape = (-1, *shape[1:]) if fits else shape
        return replace(tensor, shape=shape)

    return replace(
        signature,
        inputs=tuple(reshaped(item) for item in signature.inputs),
        outputs=tuple(reshaped(item) for item in signature.outputs),
    )


def _flag(config: pb.ModelConfig, name: str) -> bool:
    if name not in config.parameters:  # reading a map of messages by key would add the key
        return False
    return config.parameters[name].string_value.strip().casefold() in _YES
