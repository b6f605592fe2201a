"""What the quick start serves."""
