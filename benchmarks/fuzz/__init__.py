"""Hostile input for a real server: seeded mutations of sensible HTTP and gRPC requests.

`python -m benchmarks.fuzz` runs it for long, a test for some seconds.
"""
