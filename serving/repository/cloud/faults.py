"""What went wrong between here and a cloud store, told apart without importing its library.

Four libraries raise as many hierarchies, so names of classes, HTTP statuses and error codes decide.
Pure functions; any thread.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

_MOST_TEXT = 300


class Fault(enum.Enum):
    REFUSED = "refused"
    """No or wrong credentials, or no permission."""
    PASSING = "passing"
    """No network, no answer, a busy store: may work a moment later."""
    OTHER = "other"


_REFUSED_NAMES = frozenset(
    {
        "PermissionError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "ProfileNotFound",
        "DefaultCredentialsError",
        "RefreshError",
        "ClientAuthenticationError",
        "CredentialUnavailableError",
    }
)
_REFUSED_CODES = frozenset(
    {
        "ExpiredToken",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "AuthorizationHeaderMalformed",
        "AuthenticationFailed",
    }
)
_PASSING_NAMES = frozenset(
    {
        "FSTimeoutError",
        "TimeoutError",
        "ConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "EndpointConnectionError",
        "ConnectionClosedError",
        "HTTPClientError",
        "ClientError",
        "ServiceRequestError",
        "ServiceResponseError",
        "IncompleteReadError",
        "TransportError",
        "gaierror",
    }
)
_PASSING_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


def classify(error: BaseException) -> Fault:
    for cause in _causes(error):
        names = {item.__name__ for item in type(cause).__mro__}
        status, code = _status(cause), _code(cause)
        if names & _REFUSED_NAMES or status in (401, 403) or code in _REFUSED_CODES:
            return Fault.REFUSED
        if status in _PASSING_STATUSES:
            return Fault.PASSING
        # botocore's ClientError is an answer, aiohttp's is the lack of one.
        is_answer = "ClientError" in names and code
        if names & _PASSING_NAMES and not is_answer and status is None:
            return Fault.PASSING
    return Fault.OTHER


def is_timeout(error: BaseException) -> bool:
    return any("Timeout" in type(cause).__name__ for cause in _causes(error))


def lacks_credentials(error: BaseException) -> bool:
    return any(type(cause).__name__ == "NoCredentialsError" for cause in _causes(error))


def told(error: BaseException) -> str:
    """The library's words on one line, cut to a length that can be read."""
    text = " ".join(str(error).split()) or type(error).__name__
    code = next((found for cause in _causes(error) if (found := _code(cause))), "")
    if code and code not in text:
        text = f"{code}: {text}"
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _status(error: BaseException) -> int | None:
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int) and 100 <= value < 600:
            return value
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        value = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return value if isinstance(value, int) else None
    return None


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    value = getattr(error, "error_code", None)
    return str(getattr(value, "value", value)) if value else ""
