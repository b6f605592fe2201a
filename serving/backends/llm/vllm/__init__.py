"""The runtime folder of the vllm backend: model.py runs in instance processes."""
