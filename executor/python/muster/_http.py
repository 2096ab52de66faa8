"""Requests to the REST server."""

from __future__ import annotations

import contextlib
import email.message
import hashlib
import http.client
import json
import os
import pathlib
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ._context import NoRedirect
from ._settings import Settings
from .errors import ApiError, MusterError, Unreachable, refusal

#: Seconds for which a repeatable request is tried again while the server is unreachable.
PATIENCE_S = 30.0
#: Longest pause between two attempts, in seconds.
MAX_PAUSE_S = 2.0
#: Bytes per read of a download.
PIECE_BYTES = 1 << 20
#: Items per page of a list.
PAGE = 500

Value = Union[None, str, int, bool, Sequence[str]]


class Answer(NamedTuple):
    """Body and headers of an answer."""

    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


class Transport:
    """Sends requests with the token. Keeps no connection, so threads can share it."""

    def __init__(self, settings: Settings, timeout_s: float = 40.0, patience_s: float = PATIENCE_S) -> None:
        if urllib.parse.urlsplit(settings.server).scheme not in ("http", "https"):
            raise ValueError(f"the server is {settings.server!r}; expected an address such as https://muster.example")
        self.settings = settings
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._opener = urllib.request.build_opener(NoRedirect())

    def get(self, segments: Sequence[str], query: Optional[Mapping[str, Value]] = None) -> Answer:
        """Sends a GET. Repeats it while the server is unreachable or starts."""
        return self.send("GET", segments, query=query, is_repeatable=True)

    def items(self, segments: Sequence[str], query: Optional[Mapping[str, Value]] = None, limit: Optional[int] = None, page: int = PAGE) -> Iterator[Any]:
        """Yields the items of all pages of a list, at most `limit`."""
        asked: Dict[str, Value] = dict(query or {})
        left = limit
        while left is None or left > 0:
            asked["limit"] = page if left is None else min(left, page)
            found = self.get(segments, asked).json()
            yield from found["items"]
            left = None if left is None else left - len(found["items"])
            asked["continue"] = found["continue"]
            if found["continue"] is None:
                return

    def post(self, segments: Sequence[str], body: Any = None, query: Optional[Mapping[str, Value]] = None, key: Optional[str] = None) -> Any:
        """Sends a POST with a JSON body. With an idempotency key it can be repeated safely."""
        data = None if body is None else json.dumps(body).encode()
        return self.send("POST", segments, data, "application/json", query, key, is_repeatable=key is not None).json()

    def send(
        self,
        method: str,
        segments: Sequence[str],
        data: Optional[bytes] = None,
        content_type: str = "application/json",
        query: Optional[Mapping[str, Value]] = None,
        key: Optional[str] = None,
        is_repeatable: bool = False,
    ) -> Answer:
        """Sends a request. Raises :class:`ApiError` or :class:`Unreachable`."""
        url = self._url(segments, query)
        until, pause_s = time.monotonic() + self._patience_s, 0.1
        while True:
            error: Union[ApiError, Unreachable]
            try:
                return self._once(method, url, data, content_type, key)
            except ApiError as refused:
                # A request beyond the limits was not read, so it can always be repeated.
                error, may_repeat = refused, refused.status == 429 or (is_repeatable and refused.status in (502, 503))
                pause_s = max(pause_s, refused.retry_after_s or 0.0)
            except Unreachable as unreachable:
                error, may_repeat = unreachable, is_repeatable
            if not may_repeat or time.monotonic() + pause_s >= until:
                raise error
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def save(self, segments: Sequence[str], query: Mapping[str, Value], target: pathlib.Path) -> None:
        """Writes the body of an answer to a file, which appears when it is complete.

        Raises :class:`MusterError` if the body has another SHA-256 than the server states.
        """
        part = target.with_name(target.name + ".part")
        digest = hashlib.sha256()
        # Pieces of a generator: an error of the file is none of the connection.
        pieces = self._pieces(self._url(segments, query))
        stated = next(pieces).decode()
        with open(part, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if stated not in ("", digest.hexdigest()):
            raise MusterError(f"{target} was received with the SHA-256 {digest.hexdigest()}; expected {stated}; download it again")
        os.replace(part, target)

    def _pieces(self, url: str) -> Iterator[bytes]:
        """Yields the stated SHA-256 or nothing, and then the body of an answer."""
        with self._opened("GET", url, None, "", None) as answer:
            yield str(answer.headers.get("Muster-Sha256") or "").encode()
            yield from iter(lambda: answer.read(PIECE_BYTES), b"")

    def _once(self, method: str, url: str, data: Optional[bytes], content_type: str, key: Optional[str]) -> Answer:
        with self._opened(method, url, data, content_type, key) as answer:
            return Answer(answer.read(), answer.headers)

    @contextlib.contextmanager
    def _opened(self, method: str, url: str, data: Optional[bytes], content_type: str, key: Optional[str]) -> Iterator[Any]:
        request = urllib.request.Request(url, data=data, method=method)
        # Not a header of the request itself, so a proxy's CONNECT does not contain it.
        request.add_unredirected_header("Authorization", "Bearer " + self.settings.token)
        request.add_header("Accept", "application/json, */*")
        if data is not None:
            request.add_header("Content-Type", content_type)
        if key is not None:
            request.add_header("Idempotency-Key", key)
        if self.settings.tenant is not None:
            request.add_header("Muster-Tenant", self.settings.tenant)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                if 300 <= error.code < 400:
                    target = error.headers.get("Location")
                    detail = f"{self.settings.server} redirects to {target}; expected the server's own address: Client(server=...) or MUSTER_SERVER"
                    raise refusal(error.code, {"detail": detail}) from None
                raise refusal(error.code, _problem(error), _seconds(error.headers)) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unreachable(f"no answer from {self.settings.server}: {reason}; check the address (Client(server=...), MUSTER_SERVER)") from error

    def _url(self, segments: Sequence[str], query: Optional[Mapping[str, Value]]) -> str:
        path = "/".join(urllib.parse.quote(segment, safe="") for segment in segments)
        pairs: List[Tuple[str, str]] = []
        for name, value in (query or {}).items():
            if isinstance(value, (list, tuple)):
                pairs += [(name, str(item)) for item in value]
            elif value is not None:
                pairs.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
        text = "?" + urllib.parse.urlencode(pairs) if pairs else ""
        return f"{self.settings.server}/api/v1/{path}{text}"


def _problem(error: urllib.error.HTTPError) -> Mapping[str, Any]:
    try:
        body = error.read()
    except (OSError, http.client.HTTPException):
        return {}
    try:
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    except ValueError:
        # The answer of a proxy, for example.
        return {"detail": body[:500].decode("utf-8", "replace").strip()}


def _seconds(headers: Optional[email.message.Message]) -> Optional[float]:
    text = headers.get("Retry-After") if headers is not None else None
    return float(text) if text is not None and text.strip().isdigit() else None
