"""Telemetry: live socket, series, overview, live metrics."""
