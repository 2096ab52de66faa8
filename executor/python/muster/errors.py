"""Errors of the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Type

__all__ = [
    "ApiError",
    "CliError",
    "ConfigurationError",
    "Conflict",
    "FieldError",
    "Forbidden",
    "InvalidRequest",
    "JobFailed",
    "MusterError",
    "NotFound",
    "ServerError",
    "TooManyRequests",
    "Unauthenticated",
    "Unreachable",
    "WaitTimeout",
]


class MusterError(Exception):
    """Base class of all errors of the client."""


class ConfigurationError(MusterError):
    """No token is known, or the stored settings cannot be read."""


class Unreachable(MusterError):
    """The server did not answer; the message names its address."""


class WaitTimeout(MusterError, TimeoutError):
    """A job or study did not end in time. It continues."""


class JobFailed(MusterError):
    """A job ended without success."""

    def __init__(self, message: str, phase: str) -> None:
        super().__init__(message)
        #: `failed` or `cancelled`.
        self.phase = phase


class CliError(MusterError):
    """The `muster` command is missing, or failed while it sent code."""


@dataclass(frozen=True)
class FieldError:
    """An error of one field of a document."""

    #: Path in the document, such as `scale.workers.min`.
    field: str
    #: The value found, as JSON.
    value: str
    #: What would be right.
    expected: str

    def __str__(self) -> str:
        return f"{self.field} is {self.value}; expected {self.expected}"


class ApiError(MusterError):
    """The server refused a request: a problem of RFC 9457. A refused request changes nothing."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: Optional[float] = None) -> None:
        self.status = status
        #: Stable name, such as `urn:muster:problem:invalid-job`.
        self.type = str(problem.get("type", "about:blank"))
        self.title = str(problem.get("title", f"HTTP {status}"))
        self.detail = str(problem.get("detail") or "")
        #: Id of the request in the server's log.
        self.instance: Optional[str] = problem.get("instance")
        self.errors: List[FieldError] = _field_errors(problem.get("errors") or [])
        #: Seconds after which the request may be repeated, if the server names them.
        self.retry_after_s = retry_after_s
        super().__init__(self._message())

    def _message(self) -> str:
        head = self.title if self.title == f"HTTP {self.status}" else f"{self.title} ({self.status})"
        if self.detail and self.detail != self.title:
            head += f": {self.detail}"
        # The server's detail names the first errors.
        return "\n  ".join([head, *(text for text in map(str, self.errors) if text not in head)])


class InvalidRequest(ApiError):
    """The document, body or a parameter is wrong; `errors` names the fields."""


class Unauthenticated(ApiError):
    """The server does not know the token."""


class Forbidden(ApiError):
    """The token does not allow this, or a limit of the tenant is reached."""


class NotFound(ApiError):
    """The job, study or file does not exist."""


class Conflict(ApiError):
    """The phase of the job or study does not allow this, or the name is taken."""


class TooManyRequests(ApiError):
    """A limit of requests is reached; `retry_after_s` says how long to wait."""


class ServerError(ApiError):
    """The server failed, or cannot reach its database."""


_CLASSES: Mapping[int, Type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: TooManyRequests,
}


def refusal(status: int, problem: Mapping[str, Any], retry_after_s: Optional[float] = None) -> ApiError:
    """Returns the error of a refused request."""
    kind = ServerError if status >= 500 else _CLASSES.get(status, ApiError)
    return kind(status, problem, retry_after_s)


def _field_errors(found: Sequence[Any]) -> List[FieldError]:
    maps = [error for error in found if isinstance(error, Mapping)]
    return [FieldError(*(str(error.get(name, "")) for name in ("field", "value", "expected"))) for error in maps]
