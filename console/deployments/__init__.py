"""What should be served, and the history of getting there."""
