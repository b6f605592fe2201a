"""The KServe v2 door of the console, outside Django."""
