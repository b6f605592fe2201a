"""The runtime folder of the tensorrtllm backend: model.py runs in instance processes."""
