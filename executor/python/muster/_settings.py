"""Server and token of the client: arguments, variables, or what `muster login` has stored."""

from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from .errors import ConfigurationError

DEFAULT_SERVER = "http://127.0.0.1:7070"

# A line `key = value` whose value is one of TOML's two kinds of one-line strings.
_ENTRY = re.compile(r"""^(\w+)\s*=\s*(?:("(?:[^"\\]|\\.)*")|'([^']*)')\s*(?:#.*)?$""")


class Settings(NamedTuple):
    """Server and token of a client."""

    server: str
    token: str
    #: Tenant for which an administrator acts.
    tenant: Optional[str]

    def __repr__(self) -> str:
        # Tracebacks and logs must not show the token.
        return f"Settings(server={self.server!r}, tenant={self.tenant!r})"


def resolve(server: Optional[str], token: Optional[str], tenant: Optional[str], environment: Optional[Mapping[str, str]] = None) -> Settings:
    """Returns the given values, completed from the environment and from the stored settings.

    Raises :class:`ConfigurationError` if no token is known for the server.
    """
    environment = os.environ if environment is None else environment
    server = server or environment.get("MUSTER_SERVER")
    token = token or environment.get("MUSTER_TOKEN")
    tenant = tenant or environment.get("MUSTER_TENANT") or None
    if server and token:
        return Settings(server.rstrip("/"), token, tenant)
    stored = _read(_place(environment))
    server = (server or stored.get("current") or DEFAULT_SERVER).rstrip("/")
    if not token:
        token = next((entry.get("token") for entry in stored.get("contexts", []) if entry.get("server") == server), None)
    if not token:
        raise ConfigurationError(f"no token for {server}: run `muster login --server {server}`, or set MUSTER_TOKEN")
    return Settings(server, token, tenant)


def _place(environment: Mapping[str, str]) -> Optional[pathlib.Path]:
    if environment.get("MUSTER_CONFIG"):
        return pathlib.Path(environment["MUSTER_CONFIG"])
    if environment.get("XDG_CONFIG_HOME"):
        return pathlib.Path(environment["XDG_CONFIG_HOME"], "muster/config.toml")
    if environment.get("HOME"):
        return pathlib.Path(environment["HOME"], ".config/muster/config.toml")
    return None


def _read(path: Optional[pathlib.Path]) -> Dict[str, Any]:
    if path is None:
        return {}
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from error


def parse(text: str) -> Dict[str, Any]:
    """Reads the settings. Python has a reader of TOML only since 3.11, so this one reads the subset
    that the command line writes: strings, and the list of tables `contexts`."""
    contexts: List[Dict[str, str]] = []
    found: Dict[str, Any] = {"contexts": contexts}
    table: Dict[str, Any] = found
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        entry = _ENTRY.match(line)
        if line == "[[contexts]]":
            contexts.append({})
            table = contexts[-1]
        elif entry:
            quoted, literal = entry.group(2), entry.group(3)
            table[entry.group(1)] = literal if quoted is None else json.loads(quoted)
        elif line and not line.startswith("#") and line != "contexts = []":
            # The line may contain a token, so the error does not quote it.
            raise ValueError(f"line {number} is neither `key = \"value\"` nor [[contexts]]")
    return found
