"""One process of a job: its rank, the request to stop, and its reports."""

from __future__ import annotations

import atexit
import http.client
import json
import math
import os
import pathlib
import signal
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, BinaryIO, Dict, Mapping, NamedTuple, Optional, Union

#: Seconds for which a report is retried while the node's daemon is unreachable.
PATIENCE_S = 30.0
#: The same for the buffered points at the end of the process, which should not delay it.
LAST_PATIENCE_S = 3.0
#: Longest pause of an upload of an artifact, in seconds.
UPLOAD_TIMEOUT_S = 120.0
#: Longest duration of one request for the stop notice, in seconds.
WAIT_S = 30
#: Maximum number of metrics per request.
BATCH = 1000
#: Maximum length of a metric's name.
MAX_NAME_BYTES = 250


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, because urllib would send the token to the new address too."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


# The daemon is on this node. A proxy of the job's environment cannot reach it, and must not see the
# token.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect())


class ReportError(RuntimeError):
    """A report could not be delivered; the message names the failed request."""


class World(NamedTuple):
    """Place of this process among the processes of its job, in this start."""

    #: Number of this process, from 0.
    rank: int
    #: Number of processes.
    size: int
    #: Number of this process on its worker; `cuda:LOCAL_RANK` is its GPU.
    local_rank: int
    #: Number of earlier starts of the job.
    restart_count: int


class Context:
    """Context of this process in its job, returned by :func:`init`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.job_id = environment.get("MUSTER_JOB_ID")
        self.role = environment.get("MUSTER_ROLE", "worker")
        self.rank = int(environment.get("RANK", environment.get("MUSTER_RANK", "0")))
        self.world_size = int(environment.get("WORLD_SIZE", environment.get("MUSTER_WORKERS", "1")))
        self.local_rank = int(environment.get("LOCAL_RANK", "0"))
        #: Number of earlier starts of the job.
        self.restart_count = int(environment.get("MUSTER_RESTART_COUNT", "0"))
        #: Seconds from the request to stop to SIGKILL.
        self.grace_s = int(environment.get("MUSTER_GRACE_MS", "0")) / 1000.0
        self._checkpoint_dir = environment.get("MUSTER_CHECKPOINT_DIR")
        #: Folder whose files become artifacts of the job.
        self.output_dir = pathlib.Path(environment.get("MUSTER_OUTPUT_DIR") or "outputs")
        self._url = environment.get("MUSTER_TRACKING_URI")
        self._token = environment.get("MUSTER_TRACKING_TOKEN")
        self._run_id = (self.job_id or "").replace("-", "")
        self._stop = threading.Event()
        self._request = threading.Event()
        self._has_unsent = False
        self._process = os.getpid()

    def world(self) -> World:
        """Returns the rank, the number of processes, the local rank and the number of restarts."""
        return World(self.rank, self.world_size, self.local_rank, self.restart_count)

    @property
    def checkpoint_dir(self) -> pathlib.Path:
        """Checkpoint folder, the same for all processes and all starts of the job.

        If the cluster keeps checkpoints in a bucket, each process has a folder of its own. At its
        start it contains the newest checkpoint that was reported with a path.

        Raises :class:`RuntimeError` if the node's release has no folder for buckets.
        """
        if self._checkpoint_dir is None and self.job_id is not None:
            raise RuntimeError("this cluster has no folder for checkpoints (MUSTER_CHECKPOINT_DIR is not set): use a place of your own")
        return pathlib.Path(self._checkpoint_dir or "checkpoints")

    def should_checkpoint(self) -> bool:
        """Whether the job has been asked for a checkpoint, or to stop: write one now. No network use.

        The program may exit after the checkpoint. Or it calls :meth:`checkpointed` and trains on
        until :meth:`should_stop`. Without `preemption.checkpoint_on_request` in the job document
        this is the same as :meth:`should_stop`.

        Processes see a request at different steps. If they wait for each other in every step, they
        must agree on the step, for example by an all-reduce of this value. Otherwise some wait for
        the others until the grace period ends.
        """
        return self._stop.is_set() or self._request.is_set()

    def should_stop(self) -> bool:
        """Whether the job has been asked to stop: write a checkpoint now and exit. No network use."""
        return self._stop.is_set()

    def wait_for_stop(self, timeout_s: Optional[float] = None) -> bool:
        """Waits until the job is asked to stop. Returns False after `timeout_s` seconds."""
        return self._stop.wait(timeout_s)

    def report(self, step: int, scalars: Optional[Mapping[str, Any]] = None, **metrics: Any) -> None:
        """Reports metrics of a step, of any name: `report(3, loss=0.5)` or
        `report(3, {"train/f1": 0.9})`. Values are numbers, or tensors of one element.

        The job's page shows all of them. `loss` and `accuracy` (of training), `val_loss` and
        `val_accuracy`, `epoch` and `examples_per_s` are its curve too. The `loss` of rank 0
        determines the job's progress, and only the metrics of rank 0 are kept. The other ranks may
        report, with which Muster finds hangs.

        Raises :class:`ReportError` if the node's daemon does not accept the report within
        half a minute, or if a name has other characters than letters, digits, spaces, `_-./:`.
        """
        if scalars is not None and not isinstance(scalars, Mapping):
            scalars = {"scalars": scalars}
        if self._url is None:
            return
        now_ms = int(time.time() * 1000)
        points = [
            {"key": key, "value": _number(value), "timestamp": now_ms, "step": int(step)}
            for key, value in {**(scalars or {}), **metrics}.items()
        ]
        self._has_unsent = self._has_unsent or bool(points)
        for at in range(0, len(points), BATCH):
            body = {"run_id": self._run_id, "metrics": points[at : at + BATCH]}
            self._deliver("/api/2.0/mlflow/runs/log-batch", body)

    def checkpointed(self, step: int, path: Union[None, str, "os.PathLike[str]"] = None) -> None:
        """Reports a checkpoint from which the program continues at `step`. Call it on rank 0.

        With the `path` of its file or folder below :attr:`checkpoint_dir`, Muster registers it with
        the newest metrics, prunes older ones by the job document, and keeps it in a bucket.

        The report answers a request for a checkpoint. Other ranks may call it too, which ends the
        request for their own :meth:`should_checkpoint`.

        The scheduler then knows how much work a stop would lose, and stops the job for others of
        its priority only if that is little.

        Raises :class:`ReportError` as :meth:`report`, and :class:`ValueError` if `path` is not
        below the folder.
        """
        body: Dict[str, Any] = {"step": int(step)}
        if path is not None:
            # A relative path is below the checkpoint folder.
            within = pathlib.Path(os.path.normpath(self.checkpoint_dir / path))
            body["path"] = within.relative_to(os.path.normpath(self.checkpoint_dir)).as_posix()
        if self._url is not None:
            self._deliver("/muster/v1/checkpoint", body)
        self._request.clear()

    def log_artifact(self, path: Union[str, "os.PathLike[str]"], name: Optional[str] = None) -> None:
        """Keeps a file as an artifact of the job, under `name`, such as `plots/loss.png`. By default
        this is the file's own name. An earlier artifact of this name is replaced.

        Raises :class:`ReportError` if the node's daemon refuses the file, for example above a limit
        of the tenant, or does not accept it within half a minute.
        """
        file = pathlib.Path(path)
        if not file.is_file():
            raise FileNotFoundError(f"{file} is not a file")
        if self._url is not None:
            self._upload(file, file.name if name is None else name)

    def log_artifacts(self, folder: Union[str, "os.PathLike[str]"], name: Optional[str] = None) -> None:
        """Keeps each file of a folder and of the folders in it, as :meth:`log_artifact`. Their names
        are relative to the folder; with `name` they are below it."""
        top = pathlib.Path(folder)
        if not top.is_dir():
            raise NotADirectoryError(f"{top} is not a folder")
        for file in sorted(top.rglob("*")):
            if file.is_file():
                inner = file.relative_to(top).as_posix()
                self.log_artifact(file, inner if name is None else f"{name}/{inner}")

    def finish(self) -> None:
        """Sends buffered points, so that the job's page shows the last ones. More may follow.

        The end of the process does this too, unless a signal ends it.
        """
        self._flush(PATIENCE_S)

    def _flush(self, patience_s: float) -> None:
        if self._url is not None:
            body = {"run_id": self._run_id, "status": "FINISHED"}
            self._deliver("/api/2.0/mlflow/runs/update", body, patience_s)
            self._has_unsent = False

    def _at_exit(self) -> None:
        # A forked process has a copy of this object, but reported nothing itself.
        if not self._has_unsent or os.getpid() != self._process:
            return
        try:
            self._flush(LAST_PATIENCE_S)
        except ReportError:
            pass  # The program is done. Points that are lost do not change that.

    def _deliver(self, path: str, body: Any, patience_s: float = PATIENCE_S) -> None:
        until, pause = time.monotonic() + patience_s, 0.1
        while True:
            try:
                self._ask(path, body, timeout_s=min(10.0, max(0.1, until - time.monotonic())))
                return
            except urllib.error.HTTPError as error:
                if error.code < 500 or time.monotonic() >= until:
                    text = error.read().decode("utf-8", "replace")
                    raise ReportError(f"{path} answered {error.code}: {text}") from error
            except (OSError, ValueError, http.client.HTTPException) as error:
                if time.monotonic() >= until:
                    raise ReportError(f"{self._url}{path} could not be reached: {error}") from error
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _upload(self, file: pathlib.Path, name: str) -> None:
        path = "/muster/v1/artifacts/" + urllib.parse.quote(name)
        with open(file, "rb") as content:
            self._send_content(content, path, name)

    def _send_content(self, content: BinaryIO, path: str, name: str) -> None:
        until, pause = time.monotonic() + PATIENCE_S, 0.1
        while True:
            content.seek(0)
            request = urllib.request.Request(f"{self._url}{path}", data=content, method="PUT")
            request.add_header("Authorization", "Bearer " + (self._token or ""))
            request.add_header("Content-Type", "application/octet-stream")
            request.add_header("Content-Length", str(os.fstat(content.fileno()).st_size))
            try:
                with _OPENER.open(request, timeout=UPLOAD_TIMEOUT_S):
                    return
            except urllib.error.HTTPError as error:
                is_lasting = error.code not in (429, 500, 502, 503, 504)
                if is_lasting or time.monotonic() >= until:
                    text = error.read().decode("utf-8", "replace")
                    raise ReportError(f"artifact {name!r} is not kept: {error.code}: {text}") from error
            except (OSError, ValueError, http.client.HTTPException) as error:
                if time.monotonic() >= until:
                    raise ReportError(f"{self._url}{path} could not be reached: {error}") from error
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _ask(self, path: str, body: Any, timeout_s: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data=data)
        request.add_header("Authorization", "Bearer " + (self._token or ""))
        request.add_header("Content-Type", "application/json")
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return json.load(answer)

    def _watch(self) -> None:
        is_asked = False
        while not self._stop.is_set():
            try:
                # A job is asked for a checkpoint at most once in each start.
                wanted = "" if is_asked else "&checkpoint=true"
                path = f"/muster/v1/stopping?wait_s={WAIT_S}{wanted}"
                answer = self._ask(path, None, timeout_s=WAIT_S + 10)
                if answer.get("checkpoint_requested") and not is_asked:
                    is_asked = True
                    self._request.set()
                if answer.get("stopping"):
                    self._stop.set()
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return  # No longer a task of this node. SIGTERM still works.
                time.sleep(1.0)
            except (OSError, ValueError, http.client.HTTPException):
                time.sleep(1.0)


class _Process:
    """The context of this process, once it has one."""

    context: Optional[Context] = None
    handles_signals = False


def init(handle_sigterm: bool = True, environment: Optional[Mapping[str, str]] = None) -> Context:
    """Returns the context of this process in its job. Further calls return the same context.

    With `handle_sigterm`, SIGTERM does not end the process but makes `should_checkpoint` and
    `should_stop` true. The program must then exit by itself before the grace period ends. The
    signal of `preemption.checkpoint_on_request` does not end the process either. A signal handler
    requires the main thread. In other threads only the node's daemon announces the stop, which it
    always does.

    With an `environment`, returns another context that does not belong to this process.
    """
    if environment is not None:
        return _start(Context(environment), environment, handle_sigterm)
    context = _Process.context
    if context is None or context._process != os.getpid():
        context = _Process.context = Context(os.environ)
        _Process.handles_signals = False
        atexit.register(context._at_exit)
        _watch(context)
    if handle_sigterm and not _Process.handles_signals:
        _Process.handles_signals = _handle_signals(context, os.environ)
    return context


def _start(context: Context, environment: Mapping[str, str], handle_sigterm: bool) -> Context:
    if handle_sigterm:
        _handle_signals(context, environment)
    _watch(context)
    return context


def _watch(context: Context) -> None:
    if context._url is not None:
        threading.Thread(target=context._watch, name="muster-stop", daemon=True).start()


def _handle_signals(context: Context, environment: Mapping[str, str]) -> bool:
    """Returns whether this thread could set the handlers."""
    if threading.current_thread() is not threading.main_thread():
        return False
    signal.signal(signal.SIGTERM, lambda *_: _on_sigterm(context))
    name = environment.get("MUSTER_CHECKPOINT_SIGNAL")
    if name is not None:
        # The daemon announces the request too, once; a second notice would be a second request.
        signal.signal(getattr(signal, "SIG" + name), lambda *_: None)
    return True


def _on_sigterm(context: Context) -> None:
    if os.getpid() != context._process:
        # A forked process inherits the handler. It must end, or its parent waits for it forever.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    # On another thread: the interrupted main thread may hold the event's lock.
    threading.Thread(target=context._stop.set, daemon=True).start()


def report(step: int, scalars: Optional[Mapping[str, Any]] = None, **metrics: Any) -> None:
    """Reports metrics of a step, as :meth:`Context.report` of this process."""
    init().report(step, scalars, **metrics)


def log_artifact(path: Union[str, "os.PathLike[str]"], name: Optional[str] = None) -> None:
    """Keeps a file as an artifact, as :meth:`Context.log_artifact` of this process."""
    init().log_artifact(path, name)


def log_artifacts(folder: Union[str, "os.PathLike[str]"], name: Optional[str] = None) -> None:
    """Keeps the files of a folder, as :meth:`Context.log_artifacts` of this process."""
    init().log_artifacts(folder, name)


def should_checkpoint() -> bool:
    """Whether to write a checkpoint now, as :meth:`Context.should_checkpoint` of this process."""
    return init().should_checkpoint()


def should_stop() -> bool:
    """Whether to end now, as :meth:`Context.should_stop` of this process."""
    return init().should_stop()


def checkpointed(step: int, path: Union[None, str, "os.PathLike[str]"] = None) -> None:
    """Reports a checkpoint, as :meth:`Context.checkpointed` of this process."""
    init().checkpointed(step, path)


def world() -> World:
    """Returns the place of this process, as :meth:`Context.world` of this process."""
    return init().world()


def scalars_of(values: Mapping[Any, Any]) -> Dict[str, float]:
    """Returns the values that are numbers or tensors of one element, for a library's own metrics.
    Characters that the names of metrics cannot have become `_`."""
    found: Dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, (str, bytes)):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
        found[_name(str(name))] = number
    return found


def _name(text: str) -> str:
    letters = "".join(letter if letter.isalnum() or letter in " _-./:" else "_" for letter in text)
    return letters.encode()[:MAX_NAME_BYTES].decode("utf-8", "ignore") or "_"


def _number(value: Any) -> Any:
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
