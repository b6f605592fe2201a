"""Traces of single requests: settings, sampling, what is recorded, the file it goes to."""
