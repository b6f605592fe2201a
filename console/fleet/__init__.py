"""The workers and their devices."""
