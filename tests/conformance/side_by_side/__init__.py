"""Scenarios that drive a real Triton and this server with the same requests, and compare them."""
