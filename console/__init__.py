"""The operations console: Django pages, REST API, live socket, and the /v2 gateway."""
