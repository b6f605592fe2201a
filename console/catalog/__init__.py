"""The models: list, detail, config editor, try it."""
