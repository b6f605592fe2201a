"""Pipelines of NVIDIA DALI."""
