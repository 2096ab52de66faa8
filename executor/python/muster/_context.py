"""One process of a job: its rank, the request to stop, and its reports."""

import json
import math
import os
import pathlib
import signal
import threading
import time
import urllib.error
import urllib.request

#: Seconds for which a report is retried while the node's daemon is unreachable.
PATIENCE_S = 30.0
#: Longest duration of one request for the stop notice, in seconds.
WAIT_S = 30


class ReportError(RuntimeError):
    """A report could not be delivered; the message names the failed request."""


class Context:
    """Context of this process in its job, returned by :func:`init`."""

    def __init__(self, environment):
        self.job_id = environment.get("MUSTER_JOB_ID")
        self.role = environment.get("MUSTER_ROLE", "worker")
        self.rank = int(environment.get("RANK", environment.get("MUSTER_RANK", "0")))
        self.world_size = int(environment.get("WORLD_SIZE", environment.get("MUSTER_WORKERS", "1")))
        #: Number of earlier starts of the job.
        self.restart_count = int(environment.get("MUSTER_RESTART_COUNT", "0"))
        #: Seconds from the request to stop to SIGKILL.
        self.grace_s = int(environment.get("MUSTER_GRACE_MS", "0")) / 1000.0
        self._checkpoint_dir = environment.get("MUSTER_CHECKPOINT_DIR")
        self._url = environment.get("MUSTER_TRACKING_URI")
        self._token = environment.get("MUSTER_TRACKING_TOKEN")
        self._run_id = (self.job_id or "").replace("-", "")
        self._stop = threading.Event()
        self._request = threading.Event()

    @property
    def checkpoint_dir(self):
        """Checkpoint folder, the same for all processes and all starts of the job.

        Raises :class:`RuntimeError` if the cluster keeps checkpoints in a bucket and so has no such
        folder. A folder of the task would be removed with the task.
        """
        if self._checkpoint_dir is None and self.job_id is not None:
            raise RuntimeError("this cluster has no folder for checkpoints (MUSTER_CHECKPOINT_DIR is not set): bring a place of your own")
        return pathlib.Path(self._checkpoint_dir or "checkpoints")

    def should_checkpoint(self):
        """Whether the job has been asked for a checkpoint, or to stop: write one now. No network use.

        The program may exit after the checkpoint. Or it calls :meth:`checkpointed` and trains on
        until :meth:`should_stop`. Without `preemption.checkpoint_on_request` in the job document
        this is the same as :meth:`should_stop`.

        Processes see a request at different steps. If they wait for each other in every step, they
        must agree on the step, for example by an all-reduce of this value. Otherwise some wait for
        the others until the grace period ends.
        """
        return self._stop.is_set() or self._request.is_set()

    def should_stop(self):
        """Whether the job has been asked to stop: write a checkpoint now and exit. No network use."""
        return self._stop.is_set()

    def wait_for_stop(self, timeout_s=None):
        """Waits until the job is asked to stop. Returns False after `timeout_s` seconds."""
        return self._stop.wait(timeout_s)

    def report(self, step, **metrics):
        """Reports metrics of a step.

        The job's page shows `loss` and `accuracy` (of training), `val_loss` and `val_accuracy`,
        `epoch` and `examples_per_s`. The `loss` of rank 0 determines the job's progress.

        Raises :class:`ReportError` if the node's daemon does not accept the report within
        half a minute.
        """
        if self._url is None:
            return
        now_ms = int(time.time() * 1000)
        points = [
            {"key": key, "value": _number(value), "timestamp": now_ms, "step": int(step)}
            for key, value in metrics.items()
        ]
        body = {"run_id": self._run_id, "metrics": points}
        self._deliver("/api/2.0/mlflow/runs/log-batch", body)

    def checkpointed(self, step):
        """Reports a checkpoint from which the program continues at `step`. Call it on rank 0.

        The report answers a request for a checkpoint. Other ranks may call it too, which ends the
        request for their own :meth:`should_checkpoint`.

        The scheduler then knows how much work a stop would lose, and stops the job for others of
        its priority only if that is little.

        Raises :class:`ReportError` as :meth:`report`.
        """
        if self._url is not None:
            self._deliver("/muster/v1/checkpoint", {"step": int(step)})
        self._request.clear()

    def finish(self):
        """Sends buffered points, so that the job's page shows the last ones. More may follow."""
        if self._url is not None:
            self._deliver("/api/2.0/mlflow/runs/update", {"run_id": self._run_id, "status": "FINISHED"})

    def _deliver(self, path, body):
        until, pause = time.monotonic() + PATIENCE_S, 0.1
        while True:
            try:
                self._ask(path, body, timeout_s=10)
                return
            except urllib.error.HTTPError as error:
                if error.code < 500 or time.monotonic() >= until:
                    text = error.read().decode("utf-8", "replace")
                    raise ReportError(f"{path} answered {error.code}: {text}") from error
            except OSError as error:
                if time.monotonic() >= until:
                    raise ReportError(f"{self._url}{path} could not be reached: {error}") from error
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _ask(self, path, body, timeout_s):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data)
        request.add_header("Authorization", "Bearer " + (self._token or ""))
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return json.load(answer)

    def _watch(self):
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
            except (OSError, ValueError):
                time.sleep(1.0)


def init(handle_sigterm=True, environment=None):
    """Returns the context of this process in its job.

    With `handle_sigterm`, SIGTERM does not end the process but makes `should_checkpoint` and
    `should_stop` true. The program must then exit by itself before the grace period ends. The
    signal of `preemption.checkpoint_on_request` does not end the process either. A signal handler
    requires the main thread. In other threads only the node's daemon announces the stop, which it always does.
    """
    environment = os.environ if environment is None else environment
    context = Context(environment)
    if handle_sigterm and threading.current_thread() is threading.main_thread():
        _on_signal(signal.SIGTERM, context._stop)
        name = environment.get("MUSTER_CHECKPOINT_SIGNAL")
        if name is not None:
            # The daemon announces the request too, once; a second notice would be a second request.
            signal.signal(getattr(signal, "SIG" + name), lambda *_: None)
    if context._url is not None:
        threading.Thread(target=context._watch, name="muster-stop", daemon=True).start()
    return context


def _on_signal(number, event):
    # On another thread: the interrupted main thread may hold the event's lock.
    signal.signal(number, lambda *_: threading.Thread(target=event.set, daemon=True).start())


def _number(value):
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
