"""Calls of the `muster` command, which packs a folder and uploads it as a code archive.

An archive is a tar file compressed with zstd without the files that `.gitignore` excludes. Python
has zstd only since 3.14, and a second implementation of `.gitignore` could include a file that the
command excludes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any, Optional, Sequence

from ._settings import Settings
from .errors import CliError


def command(explicit: Optional[str] = None) -> str:
    """Returns the path of the command: the argument, MUSTER_CLI, or that of PATH.

    Raises :class:`CliError` if there is none.
    """
    named = explicit or os.environ.get("MUSTER_CLI")
    found = shutil.which(named or "muster")
    if found is None:
        missing = f"{named!r} is no program" if named else "the command `muster` is not on PATH"
        raise CliError(f"{missing}: it packs the folder of `code`. Install it (docs/install.md), set MUSTER_CLI to its path, or submit without code")
    return found


def send(program: str, settings: Settings, arguments: Sequence[str], document: str) -> Any:
    """Runs a verb with a document on standard input. Returns its answer.

    The token and the document may be secret, so neither is an argument, which `ps` would show.
    Raises :class:`CliError`.
    """
    environment = dict(os.environ, MUSTER_SERVER=settings.server, MUSTER_TOKEN=settings.token)
    environment.pop("MUSTER_TENANT", None)
    if settings.tenant is not None:
        environment["MUSTER_TENANT"] = settings.tenant
    whole = [program, "--output", "json", *arguments]
    try:
        ended = subprocess.run(whole, input=document, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    except OSError as error:
        raise CliError(f"{program} cannot be started: {error}") from error
    if ended.returncode != 0:
        raise CliError(f"`{' '.join(['muster', *arguments])}` ended with code {ended.returncode}: {ended.stderr.strip()}")
    try:
        return json.loads(ended.stdout)
    except ValueError as error:
        raise CliError(f"{program} answered with other output than JSON: {ended.stdout[:200]!r}") from error
