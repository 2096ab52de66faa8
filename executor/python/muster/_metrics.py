"""Metrics and curves of a job."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence

from . import _display


class MetricList(List[Dict[str, Any]]):
    """Metrics of a job by name, each with `name`, `last`, `last_step`, `min`, `max` and `values`."""

    @property
    def names(self) -> List[str]:
        """Names of the metrics."""
        return [metric["name"] for metric in self]

    def _repr_html_(self) -> str:
        heads = ["metric", "last", "step", "min", "max"]
        fields = ["name", "last", "last_step", "min", "max"]
        return _display.table(heads, ([_display.text(metric[field]) for field in fields] for metric in self))


class Series(Sequence[Mapping[str, Any]]):
    """Points of one metric, each with `step`, `last`, `mean`, `min`, `max` and `values`."""

    def __init__(self, name: str, points: Sequence[Mapping[str, Any]], bucket_steps: int = 1) -> None:
        self.name = name
        #: Number of steps that a point covers.
        self.bucket_steps = bucket_steps
        self._points = list(points)

    @property
    def steps(self) -> List[int]:
        """Step of each point."""
        return [point["step"] for point in self._points]

    @property
    def values(self) -> List[float]:
        """Newest value of each point."""
        return [point["last"] for point in self._points]

    def __getitem__(self, at: Any) -> Any:
        return self._points[at]

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._points)

    def __repr__(self) -> str:
        return f"<Series {self.name}: {len(self)} points>"

    def _repr_html_(self) -> str:
        return _display.curve(self.name, list(zip(self.steps, self.values)))


class SeriesMap(Dict[str, Series]):
    """Series by the name of their metric."""

    def _repr_html_(self) -> str:
        return "".join(series._repr_html_() for series in self.values())
