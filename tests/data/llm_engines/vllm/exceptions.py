class VLLMClientError(Exception):
    """A caller's mistake; no ValueError, as in vLLM."""


class VLLMValidationError(VLLMClientError):
    pass
