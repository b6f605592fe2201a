"""People and their tokens: login, roles, themes, API tokens."""
