"""What jobs and studies have in common."""

from __future__ import annotations

import time
from typing import Any, ClassVar, Dict, Mapping, Optional, Tuple, TypeVar

from ._http import Answer, Transport
from .errors import WaitTimeout

#: First and longest pause between two requests for a phase, in seconds.
PAUSE_S, MAX_PAUSE_S = 0.2, 2.0

Self = TypeVar("Self", bound="Resource")


class Resource:
    """A job or a study. `data` is the newest answer of the server about it."""

    #: Its noun in messages, its collection in addresses, and the phases that end it.
    _noun: ClassVar[str]
    _collection: ClassVar[str]
    _ended: ClassVar[Tuple[str, ...]]

    def __init__(self, transport: Transport, data: Dict[str, Any]) -> None:
        self._transport = transport
        #: The `JobView` or `StudyView` of the REST reference.
        self.data = data

    @property
    def id(self) -> str:
        """Id."""
        return str(self.data["id"])

    @property
    def name(self) -> str:
        """Name. Another one may have the same."""
        return str(self.data["name"])

    @property
    def url(self) -> str:
        """Address of its page."""
        return f"{self._transport.settings.server}/{self._collection}/{self.id}"

    @property
    def has_ended(self) -> bool:
        """Whether the newest answer shows that it has ended. No network use."""
        return self.data["phase"] in self._ended

    @property
    def phase(self) -> str:
        """Present phase. Asks the server unless it has ended."""
        return str((self.data if self.has_ended else self.refresh().data)["phase"])

    def refresh(self: Self) -> Self:
        """Reads it again."""
        self.data = self._get().json()
        return self

    def delete(self) -> None:
        """Deletes it after its end: a job with its checkpoints, a study with the jobs of its trials."""
        self._transport.send("DELETE", [self._collection, self.id])

    def _wait(self, timeout_s: Optional[float]) -> None:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        pause_s = PAUSE_S
        while self.phase not in self._ended:
            left_s = pause_s if until is None else until - time.monotonic()
            if left_s <= 0:
                raise WaitTimeout(f"{self._noun} {self.name} is {self.data['phase']}, and did not end within {timeout_s} s; it continues")
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, MAX_PAUSE_S)

    def _get(self, *path: str, **query: Any) -> Answer:
        return self._transport.get([self._collection, self.id, *path], query)

    def _post(self: Self, verb: str, body: Optional[Mapping[str, Any]] = None, key: Optional[str] = None) -> Self:
        self.data = self._transport.post([self._collection, self.id, verb], body, key=key)
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} ({self.id}): {self.data['phase']}>"
