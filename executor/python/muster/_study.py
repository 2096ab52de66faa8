"""A study: a search over parameters whose trials are jobs."""

from __future__ import annotations

import uuid
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import _display
from ._job import Job
from ._resource import Resource

#: Phases that a study never leaves, except by an extension.
ENDED = ("finished", "cancelled")
#: Trials per page. With curves, the server answers at most 100.
TRIALS_PER_PAGE = 100


class TrialList(List[Dict[str, Any]]):
    """Trials in the order of their creation: `TrialView` of the REST reference."""

    def __init__(self, trials: Sequence[Dict[str, Any]], objectives: Sequence[str]) -> None:
        super().__init__(trials)
        #: Names of the metrics in `outcome.values`.
        self.objectives = list(objectives)

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for trial in self for name in trial["parameters"]))
        rows = []
        for trial in self:
            values = (trial.get("outcome") or {}).get("values") or [None] * len(self.objectives)
            given = [_display.text(trial["parameters"].get(name)) for name in names]
            number = _display.text(trial["number"])
            rows.append([f"<b>{number}</b>" if trial.get("best") else number, _display.text(trial["state"]), *given, *map(_display.text, values)])
        return _display.table(["trial", "state", *names, *self.objectives], rows)


class Study(Resource):
    """A study. `data` is the newest answer of the server about it."""

    _noun, _collection, _ended = "study", "studies", ENDED

    @property
    def spec(self) -> Dict[str, Any]:
        """The study document, with its defaults."""
        spec: Dict[str, Any] = self.data["document"]
        return spec

    @property
    def objectives(self) -> List[str]:
        """Names of the metrics that the study optimises."""
        return [objective["metric"] for objective in self.spec["search"]["objectives"]]

    @property
    def best(self) -> Optional[Dict[str, Any]]:
        """The best trial: `BestTrialView` with `trial` and `checkpoint`. None until a trial has a
        result. With several objectives, the first of :meth:`front`."""
        front = self.front()
        return front[0] if front else None

    def front(self) -> List[Dict[str, Any]]:
        """Returns the trials that no other one improves on, in the order of their creation."""
        return list(self._transport.items(["studies", self.id, "best"]))

    def trials(self, state: Optional[str] = None, curves: bool = False) -> TrialList:
        """Returns the trials, with `curves` also their learning curves."""
        query = {"state": state, "curves": curves}
        found = self._transport.items(["studies", self.id, "trials"], query, page=TRIALS_PER_PAGE)
        return TrialList(list(found), self.objectives)

    def job(self, trial: Mapping[str, Any]) -> Job:
        """Returns the job of a trial of :meth:`trials`, :attr:`best` or :meth:`front`. Raises
        :class:`ValueError` if the trial is trained outside."""
        trial = trial.get("trial", trial)
        if trial.get("job_id") is None:
            raise ValueError(f"trial {trial['number']} of study {self.name} has no job")
        return Job(self._transport, self._transport.get(["jobs", trial["job_id"]]).json())

    def wait(self, timeout: Optional[float] = None) -> Study:
        """Waits until the study has ended. Raises :class:`WaitTimeout` after `timeout` seconds."""
        self._wait(timeout)
        return self

    def ask(self, count: int = 1, wait_s: int = 10) -> List[Dict[str, Any]]:
        """Returns further trials of a study without `job`, at most `count`. The list may be empty."""
        body = {"count": count, "wait_s": wait_s}
        asked = self._transport.post(["studies", self.id, "ask"], body, key=str(uuid.uuid4()))
        trials: List[Dict[str, Any]] = asked["trials"]
        return trials

    def tell(self, trial: int, values: Optional[Mapping[str, float]] = None, step: Optional[int] = None, state: str = "finished", exhausted: bool = False) -> List[int]:
        """Reports a result of a trial that :meth:`ask` has returned: `finished`, `running` for a
        point of its curve, or `failed`. `step` is the trial's progress in units of the budget. A
        trial that finishes below its budget needs `exhausted`. Returns the trials that should stop."""
        if step is None and state != "failed":
            raise ValueError(f"step is None for a trial that is {state}; expected its progress, such as the trial's `budget`")
        result = {"trial": trial, "values": dict(values or {}), "step": step, "state": state, "exhausted": exhausted}
        stopped: List[int] = self._transport.post(["studies", self.id, "tell"], {"results": [result]})["stopped"]
        return stopped

    def extend(self, trials: int) -> Study:
        """Adds trials. A finished study continues."""
        return self._post("extend", {"trials": trials}, str(uuid.uuid4()))

    def cancel(self) -> Study:
        """Stops all trials. Their results and checkpoints stay."""
        return self._post("cancel")

    def pause(self) -> Study:
        """Starts no further trial, and continues none to its next rung."""
        return self._post("pause")

    def resume(self) -> Study:
        """Continues a paused study."""
        return self._post("resume")

    def _repr_html_(self) -> str:
        counts = self.data["trials"]
        made = f"{_display.text(counts['created'])} of {_display.text(counts['limit'])}"
        ends = ", ".join(f"{_display.text(counts[name])} {name}" for name in ("running", "completed", "stopped", "failed"))
        pairs = [("study", _display.link(self.url, self.name)), ("phase", _display.text(self.data["phase"])), ("trials", f"{made}: {ends}")]
        return _display.facts(pairs)


class StudyList(List[Study]):
    """Studies, newest first."""

    def _repr_html_(self) -> str:
        rows = ([_display.link(study.url, study.name), _display.text(study.data["phase"]), _display.text(study.data["trials"]["created"])] for study in self)
        return _display.table(["study", "phase", "trials"], rows)
