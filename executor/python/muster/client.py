"""Client of a Muster server: submit, watch and steer jobs and studies.

    from muster import Client

    client = Client()                       # what `muster login` has stored
    job = client.run(["python3", "train.py"], gpus=1)
    for line in job.logs(follow=True):
        print(line)

Only the standard library is used. Threads can share a client.
"""

from __future__ import annotations

import json
import os
import pathlib
import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import _cli, _display, _document, _settings
from ._document import Document, Source, Workers
from ._http import Transport
from ._job import ENDED, Job, JobList
from ._metrics import MetricList, Series, SeriesMap
from ._study import Study, StudyList, TrialList
from .errors import NotFound

__all__ = ["Client", "Job", "JobList", "MetricList", "NodeList", "Series", "SeriesMap", "Study", "StudyList", "TrialList"]

#: Phases of a job that has not ended.
OPEN = ("queued", "starting", "running", "suspended", "stopping", "paused")


class NodeList(List[Dict[str, Any]]):
    """Nodes by name: `NodeView` of the REST reference."""

    def _repr_html_(self) -> str:
        rows = []
        for node in self:
            kinds = sorted({str(gpu.get("kind")) for gpu in node["capacity"]["gpus"]})
            state = "drained" if node.get("drained") else node["state"]
            rows.append([_display.text(node["name"]), _display.text(state), _display.text(len(node["gpus"])), _display.text(", ".join(kinds))])
        return _display.table(["node", "state", "GPUs", "kinds"], rows)


class Client:
    """Client of one server.

    `server` and `token` come from the arguments, else from MUSTER_SERVER and MUSTER_TOKEN, else
    from what `muster login` or `muster up` has stored. `tenant` is for administrators. `cli` is the
    path of the `muster` command, which sends the folder of `code`; by default MUSTER_CLI or the
    command of PATH. A request that reads is tried again for `patience_s` seconds while the server
    is unreachable.
    """

    def __init__(
        self,
        server: Optional[str] = None,
        token: Optional[str] = None,
        *,
        tenant: Optional[str] = None,
        cli: Optional[str] = None,
        timeout_s: float = 40.0,
        patience_s: float = 30.0,
    ) -> None:
        settings = _settings.resolve(server, token, tenant)
        self._transport = Transport(settings, timeout_s, patience_s)
        self._cli = cli

    @property
    def server(self) -> str:
        """Address of the server."""
        return self._transport.settings.server

    def me(self) -> Dict[str, Any]:
        """Returns the user of the token, the tenant and its limits."""
        me: Dict[str, Any] = self._transport.get(["me"]).json()
        return me

    def submit(self, document: Source, *, code: Union[None, str, "os.PathLike[str]"] = None, dry_run: bool = False) -> Job:
        """Submits a job document: a map, the path of a YAML or JSON file, or its text.

        `code` is a folder that is sent as the program's code, which needs the `muster` command.
        With `dry_run` the document is only checked.

        Raises :class:`muster.errors.InvalidRequest`, which names the wrong fields.
        """
        return Job(self._transport, self._create("jobs", ["submit"], _document.read(document), code, dry_run))

    def submit_template(self, name: str, parameters: Optional[Mapping[str, Any]] = None, *, dry_run: bool = False) -> Job:
        """Submits a job from a template of the tenant with the values of its parameters. With
        `dry_run` the values and the document are only checked.

        Raises :class:`muster.errors.InvalidRequest`, which names the wrong parameters.
        """
        # A repeated request with the same key creates nothing.
        key = None if dry_run else str(uuid.uuid4())
        query = {"dry_run": True} if dry_run else None
        body = {"parameters": dict(parameters or {})}
        return Job(self._transport, self._transport.post(["templates", name, "submit"], body, query, key))

    def run(
        self,
        argv: Sequence[Any],
        *,
        code: Union[None, str, "os.PathLike[str]"] = ".",
        name: Optional[str] = None,
        gpus: Optional[int] = None,
        workers: Workers = 1,
        gpu_kinds: Sequence[str] = (),
        cpus: Optional[float] = None,
        memory: Union[None, int, str] = None,
        image: Optional[str] = None,
        requirements: Optional[str] = None,
        env: Union[None, Mapping[str, Any], Iterable[str]] = None,
        fields: Optional[Mapping[str, Any]] = None,
    ) -> Job:
        """Runs a program of a folder as a job, as `muster run` does, and returns the job at once.

        `workers` is a number, or a range such as `(1, 8)` in which the scheduler chooses. `env` is
        a map, or a list of variables of this process. `fields` sets other fields of the document,
        such as `{"stop.wall_minutes": 60}`. Without `code` the program is on the nodes; otherwise
        the `muster` command is needed.
        """
        if requirements is not None and (code is None or not pathlib.Path(code, requirements).is_file()):
            raise FileNotFoundError(f"requirements is {requirements!r}; expected a file of the folder that is sent ({code})")
        document = _document.of_program(
            argv,
            name=name,
            gpus=gpus,
            workers=workers,
            gpu_kinds=gpu_kinds,
            cpus=cpus,
            memory=memory,
            image=image,
            requirements=requirements,
            env=env,
            fields=fields,
        )
        return self.submit(document, code=code)

    def jobs(
        self,
        *,
        phase: Union[None, str, Sequence[str]] = None,
        name: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        limit: Optional[int] = 50,
    ) -> JobList:
        """Returns the newest jobs, newest first. `limit=None` returns all."""
        query = {
            "phase": [phase] if isinstance(phase, str) else list(phase or ()),
            "name": name,
            "label": [f"{key}={value}" for key, value in (labels or {}).items()],
        }
        return JobList(Job(self._transport, data) for data in self._transport.items(["jobs"], query, limit))

    def job(self, name_or_id: str) -> Job:
        """Returns the job of this id, or of this name: the newest one that has not ended, else the
        newest. Raises :class:`muster.errors.NotFound`."""
        if _is_id(name_or_id):
            return Job(self._transport, self._transport.get(["jobs", name_or_id]).json())
        found = self.jobs(phase=OPEN, name=name_or_id, limit=1) or self.jobs(name=name_or_id, limit=1)
        if not found:
            raise _missing("job", name_or_id)
        return found[0]

    def create_study(self, document: Source, *, code: Union[None, str, "os.PathLike[str]"] = None, dry_run: bool = False) -> Study:
        """Creates a study: a map, the path of a YAML or JSON file, or its text. `code` and `dry_run`
        are those of :meth:`submit`."""
        return Study(self._transport, self._create("studies", ["study", "create"], _document.read(document), code, dry_run))

    def studies(self, *, name: Optional[str] = None, limit: Optional[int] = 50) -> StudyList:
        """Returns the newest studies, newest first. `limit=None` returns all."""
        return StudyList(Study(self._transport, data) for data in self._transport.items(["studies"], {"name": name}, limit))

    def study(self, name_or_id: str) -> Study:
        """Returns the study of this id, or the newest of this name."""
        if _is_id(name_or_id):
            return Study(self._transport, self._transport.get(["studies", name_or_id]).json())
        found = self.studies(name=name_or_id, limit=1)
        if not found:
            raise _missing("study", name_or_id)
        return found[0]

    def nodes(self) -> NodeList:
        """Returns the nodes of the cluster by name."""
        return NodeList(self._transport.items(["nodes"]))

    def _create(self, path: str, verb: List[str], document: Document, code: Union[None, str, "os.PathLike[str]"], dry_run: bool) -> Any:
        if code is None or dry_run:
            # A repeated request with the same key creates nothing.
            key = None if dry_run else str(uuid.uuid4())
            query = {"dry_run": True} if dry_run else None
            data = document.text.encode()
            return self._transport.send("POST", [path], data, document.content_type, query, key, is_repeatable=True).json()
        program = _cli.command(self._cli)
        folder = pathlib.Path(code)
        if not folder.is_dir():
            raise NotADirectoryError(f"code is {str(folder)!r}; expected a folder")
        self._check(path, document)
        return _cli.send(program, self._transport.settings, [*verb, "-", "--code", str(folder.resolve())], document.text)

    def _check(self, path: str, document: Document) -> None:
        """Lets the server check a document before its code is sent, because its answer names the
        wrong fields. A YAML document is not checked here: the command checks it."""
        try:
            whole = json.loads(document.text)
        except ValueError:
            return
        if not isinstance(whole, dict):
            return
        job = whole.get("job") if path == "studies" else whole
        command = job.get("command") if isinstance(job, dict) else None
        if not isinstance(command, dict) or "python" in command:
            return
        self._transport.send("POST", [path], document.text.encode(), document.content_type, {"dry_run": True}, is_repeatable=True)


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _missing(what: str, name: str) -> Exception:
    return NotFound(404, {"title": "Not found", "detail": f"no {what} has the name or id {name!r}"})
