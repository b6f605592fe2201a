"""Text-generation engines (vLLM, TensorRT-LLM) behind one contract of tensors."""
