"""What every page shares: look, roles, audit, errors, the door to the workers."""
