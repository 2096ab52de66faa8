"""A job of the cluster."""

from __future__ import annotations

import codecs
import os
import pathlib
import shutil
import tarfile
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Union, overload

from . import _display
from ._http import Answer
from ._metrics import MetricList, Series, SeriesMap
from ._resource import MAX_PAUSE_S, PAUSE_S, Resource
from .errors import JobFailed, MusterError, NotFound

if TYPE_CHECKING:
    from typing import Literal

#: Phases that a job never leaves.
ENDED = ("succeeded", "failed", "cancelled")
#: Names per request for points.
NAMES_PER_REQUEST = 10
#: Points of a curve in a notebook.
DRAWN_POINTS = 300


class Job(Resource):
    """A job. `data` is the newest answer of the server about it."""

    _noun, _collection, _ended = "job", "jobs", ENDED

    @property
    def spec(self) -> Dict[str, Any]:
        """The job document, with its defaults."""
        spec: Dict[str, Any] = self.data["spec"]
        return spec

    @property
    def progress(self) -> Optional[Dict[str, Any]]:
        """Step, loss and other measures of the newest answer; None before the first sample."""
        return self.data.get("progress")

    @property
    def failure(self) -> Optional[str]:
        """Why the job failed; None unless it did."""
        return self.data.get("failure")

    def wait(self, timeout: Optional[float] = None, check: bool = False) -> Job:
        """Waits until the job has ended.

        Raises :class:`WaitTimeout` after `timeout` seconds. With `check`, raises
        :class:`JobFailed` if the job has failed or was cancelled.
        """
        self._wait(timeout)
        if check and self.data["phase"] != "succeeded":
            reason = f": {self.failure}" if self.failure else ""
            raise JobFailed(f"job {self.name} {self.data['phase']}{reason}", self.data["phase"])
        return self

    @overload
    def logs(self, follow: Literal[False] = False, task: str = "worker-0", tail_bytes: Optional[int] = None) -> str: ...

    @overload
    def logs(self, follow: Literal[True], task: str = "worker-0") -> Iterator[str]: ...

    def logs(self, follow: bool = False, task: str = "worker-0", tail_bytes: Optional[int] = None) -> Union[str, Iterator[str]]:
        """Returns the output of a task, or its last `tail_bytes` bytes.

        With `follow`, returns an iterator of lines that ends with the job. After a restart it
        continues with the new task in this place.
        """
        if follow:
            if tail_bytes is not None:
                raise ValueError("tail_bytes is given with follow=True, which yields the whole log; leave one of them out")
            return self._lines(task)
        if tail_bytes is not None:
            return self._get("logs", task=task, tail_bytes=tail_bytes).body.decode("utf-8", "replace")
        parts: List[bytes] = []
        offset, end, first = 0, 1, None
        while offset < end:
            # At most 1 MiB an answer.
            answer = self._get("logs", task=task, offset=offset)
            if first not in (None, answer.headers["Muster-Log-Task"]):
                # The job has restarted meanwhile. The log of its new task begins at 0.
                return self.logs(False, task)
            parts.append(answer.body)
            first = answer.headers["Muster-Log-Task"]
            offset, end = int(answer.headers["Muster-Log-Next-Offset"]), int(answer.headers["Muster-Log-End"])
        return b"".join(parts).decode("utf-8", "replace")

    def _lines(self, task: str) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        offset, place, rest, pause_s = 0, None, "", PAUSE_S
        while True:
            # The phase is read before the log, so the log of an ended job is complete.
            has_ended = self.phase in ENDED
            answer = self._log_at(task, offset)
            if answer is not None and place not in (None, answer.headers["Muster-Log-Task"]):
                # The job has restarted: first the rest of the old task's log, then the new log.
                last = self._log_at(str(place), offset)
                rest += decoder.decode(last.body if last is not None else b"", final=True)
                yield from rest.splitlines()
                decoder.reset()
                rest, offset, answer = "", 0, self._log_at(task, 0)
            text = ""
            if answer is not None:
                place, offset = answer.headers["Muster-Log-Task"], int(answer.headers["Muster-Log-Next-Offset"])
                text = decoder.decode(answer.body)
            *lines, rest = (rest + text).split("\n")
            yield from lines
            if not text and has_ended:
                if rest:
                    yield rest
                return
            pause_s = PAUSE_S if text else min(pause_s * 1.5, MAX_PAUSE_S)
            if not text:
                time.sleep(pause_s)

    def _log_at(self, task: str, offset: int) -> Optional[Answer]:
        """Returns a part of the log; None while the task does not exist."""
        try:
            return self._get("logs", task=task, offset=offset)
        except NotFound:
            self.refresh()
            return None

    def artifacts(self, prefix: str = "") -> List[Dict[str, Any]]:
        """Returns the files that the program has written whose path begins with `prefix`: each has
        `path`, `bytes`, `sha256`, `content_type` and `stored_at`."""
        query = {"prefix": prefix} if prefix else {}
        return list(self._transport.items(["jobs", self.id, "artifacts"], query))

    def download_artifacts(self, folder: Union[str, "os.PathLike[str]"] = ".", prefix: str = "") -> List[pathlib.Path]:
        """Downloads the artifacts whose path begins with `prefix` into a folder. Returns their files.

        A name that ends with `.tar` is one tar file of all of them, unless it is a folder."""
        whole = pathlib.Path(folder)
        if whole.suffix == ".tar" and not whole.is_dir():
            self._transport.save(["jobs", self.id, "artifacts", "archive"], {"prefix": prefix} if prefix else {}, whole)
            return [whole]
        files = []
        for found in self.artifacts(prefix):
            parts = found["path"].split("/")
            if any(part in ("", ".", "..") for part in parts):
                raise MusterError(f"the server names a file {found['path']!r}, which would be written elsewhere")
            target = pathlib.Path(folder, *parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._transport.save(["jobs", self.id, "artifacts", "content"], {"path": found["path"]}, target)
            files.append(target)
        return files

    def checkpoints(self) -> List[Dict[str, Any]]:
        """Returns the checkpoints, newest first: each has `step`, `path`, `bytes` and `retained`,
        and those of a program have `metrics`."""
        return list(self._transport.items(["jobs", self.id, "checkpoints"]))

    def download_checkpoint(self, step: int, folder: Union[str, "os.PathLike[str]"] = ".") -> pathlib.Path:
        """Downloads a program's checkpoint into a folder. Returns its file or folder there."""
        found = [one for one in self.checkpoints() if one["step"] == step and one["retained"]]
        if not found:
            raise MusterError(f"job {self.name} has no checkpoint of step {step}")
        target = pathlib.Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        archive = target / f".muster-{self.id}-{step}.tar"
        self._transport.save(["jobs", self.id, "checkpoints", str(step), "archive"], {}, archive)
        try:
            with tarfile.open(archive) as files:
                for entry in files.getmembers():
                    parts = pathlib.PurePosixPath(entry.name).parts
                    content = files.extractfile(entry)
                    if not entry.isfile() or content is None or entry.name.startswith("/") or ".." in parts:
                        raise MusterError(f"the archive has {entry.name!r}, which is no file of a checkpoint")
                    place = target.joinpath(*parts)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with open(place, "wb") as file:
                        shutil.copyfileobj(content, file)
        finally:
            archive.unlink()
        return target / found[0]["path"]

    def metrics(self) -> MetricList:
        """Returns the metrics that the program has logged, by name."""
        return MetricList(self._get("metrics").json()["items"])

    def points(self, names: Union[None, str, Sequence[str]] = None, max_points: Optional[int] = None) -> SeriesMap:
        """Returns the points of metrics by name, of all metrics without `names`. Names that the job
        has not logged are left out."""
        if names is None:
            names = self.metrics().names
        wanted = [names] if isinstance(names, str) else list(names)
        found = SeriesMap()
        for at in range(0, len(wanted), NAMES_PER_REQUEST):
            part = wanted[at : at + NAMES_PER_REQUEST]
            for series in self._get("metrics", "points", name=part, max_points=max_points).json()["items"]:
                found[series["name"]] = Series(series["name"], series["points"], series["bucket_steps"])
        return found

    def curve(self, max_points: int = 1000) -> Dict[str, Any]:
        """Returns the training series of any job, also of the built-in engine: `samples` and
        `evaluations`."""
        curve: Dict[str, Any] = self._get("progress", max_points=max_points).json()
        return curve

    def tasks(self) -> List[Dict[str, Any]]:
        """Returns the tasks of the newest revision."""
        tasks: List[Dict[str, Any]] = self._get("tasks").json()["items"]
        return tasks

    def events(self) -> List[Dict[str, Any]]:
        """Returns the history of the job, oldest first."""
        return list(self._transport.items(["jobs", self.id, "events"]))

    def cancel(self) -> Job:
        """Cancels the job. Its tasks write a checkpoint and stop."""
        return self._post("cancel")

    def pause(self) -> Job:
        """Pauses the job. Its tasks write a checkpoint and release their GPUs."""
        return self._post("pause")

    def resume(self) -> Job:
        """Queues a paused job again. It continues from its newest checkpoint."""
        return self._post("resume")

    def _repr_html_(self) -> str:
        progress, waiting = self.progress or {}, self.data.get("waiting") or {}
        workers = self.data["workers"]
        pairs = [
            ("job", _display.link(self.url, self.name)),
            ("phase", _display.phase(self.data["phase"])),
            ("workers", f"{_display.text(workers['running'])} of {_display.text(workers['min'])} to {_display.text(workers['max'])}"),
            ("steps", _display.steps(progress)),
            ("waits for", _display.text(waiting.get("message"))),
            ("failure", _display.text(self.failure)),
        ]
        return _display.facts((name, value) for name, value in pairs if value) + self._drawn()

    def _drawn(self) -> str:
        # A notebook shows the job even if the server has gone meanwhile.
        try:
            samples = [point for point in self.curve(DRAWN_POINTS)["samples"] if point.get("loss") is not None]
        except MusterError:
            return ""
        return _display.curve("loss", [(point["step"], point["loss"]) for point in samples]) if samples else ""


class JobList(List[Job]):
    """Jobs, newest first."""

    def _repr_html_(self) -> str:
        heads = ["job", "phase", "steps", "loss", "reason"]
        return _display.table(heads, (_display.job_row(job.data, job.url) for job in self))
