"""Optuna with Muster, in two ways.

Each trial is a job: Optuna's samplers and pruners search, and Muster trains in parallel.

    import optuna
    from muster import Client
    from muster.errors import JobFailed
    from muster.optuna import JobObjective

    client = Client()

    def submit(trial):
        lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        return client.run(["python3", "train.py", "--lr", lr], gpus=1)

    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.MedianPruner())
    study.optimize(JobObjective(submit, metric="val_loss"), n_trials=50, n_jobs=8, catch=(JobFailed,))

A whole study is one job: :class:`MusterCallback` reports its trials, and :func:`storage` keeps them
over restarts.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

try:
    import optuna
except ImportError as error:
    raise ImportError("muster.optuna needs Optuna: pip install optuna") from error

from ._context import Context, init

if TYPE_CHECKING:
    from .client import Job

__all__ = ["JobObjective", "MusterCallback", "storage"]

#: Which value of a metric's points is the value of the trial.
REDUCTIONS: Dict[str, Callable[[List[Any]], float]] = {
    "last": lambda points: points[-1]["last"],
    "min": lambda points: min(point["min"] for point in points),
    "max": lambda points: max(point["max"] for point in points),
}


class JobObjective:
    """Objective whose trials are jobs.

    `submit` gets the trial, chooses parameters with `trial.suggest_...`, and returns the submitted
    job. `metric` is a name that the program logs, or a list of names for several objectives.
    `reduce` says which of its values counts: `last`, `min` or `max`.

    With one metric its points are reported to the trial, so a pruner can end it. The job of a
    pruned trial is cancelled. A failed job raises :class:`muster.errors.JobFailed`, which
    `study.optimize(catch=(JobFailed,))` counts as a failed trial. The trial's user attributes
    `muster_job` and `muster_url` name its job.
    """

    def __init__(self, submit: Callable[[Any], Job], metric: Union[str, Sequence[str]], reduce: str = "last", poll_s: float = 2.0) -> None:
        if reduce not in REDUCTIONS:
            raise ValueError(f"reduce is {reduce!r}; expected one of {', '.join(REDUCTIONS)}")
        self._submit = submit
        self._metrics = [metric] if isinstance(metric, str) else list(metric)
        self._reduce = REDUCTIONS[reduce]
        self._poll_s = poll_s

    def __call__(self, trial: Any) -> Union[float, Tuple[float, ...]]:
        """Trains the trial and returns its values."""
        job = self._submit(trial)
        trial.set_user_attr("muster_job", job.id)
        trial.set_user_attr("muster_url", job.url)
        try:
            self._watch(trial, job)
        except BaseException:
            # Also for an interrupted study: a job without its trial would hold GPUs for nothing.
            # `errors` is not sent to tasks, which have no jobs of their own to cancel.
            from .errors import Conflict

            if not job.has_ended:
                with contextlib.suppress(Conflict):  # It has ended meanwhile.
                    job.cancel()
            raise
        job.wait(check=True)
        points = job.points(self._metrics)
        missing = [name for name in self._metrics if not len(points.get(name, ()))]
        if missing:
            raise ValueError(f"job {job.name} ({job.id}) has not logged {', '.join(missing)}, which the study optimises")
        values = tuple(self._reduce(list(points[name])) for name in self._metrics)
        return values if len(values) > 1 else values[0]

    def _watch(self, trial: Any, job: Job) -> None:
        """Reports new points until the job has ended. Raises `optuna.TrialPruned`."""
        reported = -1
        # Optuna refuses reports of a trial with several objectives.
        while len(self._metrics) == 1:
            phase = job.phase
            for series in job.points(self._metrics).values():
                for point in series:
                    if point["step"] > reported:
                        reported = point["step"]
                        trial.report(point["last"], reported)
            if job.has_ended:
                return
            if reported >= 0 and trial.should_prune():
                raise optuna.TrialPruned(f"job {job.name} was {phase} at step {reported}")
            time.sleep(self._poll_s)
        job.wait()


class MusterCallback:
    """Callback of `study.optimize` for a study that runs inside a job. Reports the value of each
    trial and the best one, with the number of the trial as step. Stops the study when the job must
    stop."""

    def __init__(self, metric: str = "value", context: Optional[Context] = None) -> None:
        self.job = context or init()
        #: Whether the study ended because the job must stop.
        self.stopped = False
        self._metric = metric

    def __call__(self, study: Any, trial: Any) -> None:
        """Reports a trial that has ended."""
        values = trial.values or []
        names = [self._metric] if len(values) < 2 else [f"{self._metric}/{index}" for index in range(len(values))]
        scalars = dict(zip(names, values))
        if len(values) == 1 and len(study.directions) == 1:
            scalars[f"best_{self._metric}"] = study.best_value
        if scalars:
            self.job.report(trial.number, scalars)
        if self.job.should_checkpoint():
            # The storage has all trials already.
            self.job.checkpointed(trial.number + 1)
        if self.job.should_stop():
            self.stopped = True
            study.stop()


def storage(name: str = "optuna.log") -> Any:
    """Returns a storage in the job's checkpoint folder, with which a study continues after a
    restart: `optuna.create_study(study_name="s", storage=storage(), load_if_exists=True)`."""
    folder = init().checkpoint_dir
    folder.mkdir(parents=True, exist_ok=True)
    try:
        from optuna.storages.journal import JournalFileBackend as Backend
    except ImportError:
        from optuna.storages import JournalFileStorage as Backend  # type: ignore[no-redef,unused-ignore]
    return optuna.storages.JournalStorage(Backend(str(folder / name)))
