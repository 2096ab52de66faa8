"""HTML of jobs, lists and curves for notebooks. All text is escaped: names come from users."""

from __future__ import annotations

import html
import math
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

WIDTH, HEIGHT, MARGIN = 360, 120, 6
#: Text colours that are readable on light and dark pages.
_COLOURS = {"succeeded": "#2e9e5b", "failed": "#d64545", "running": "#3b82d6", "cancelled": "#8a8a8a"}

Point = Tuple[float, float]


def text(value: Any) -> str:
    """Returns the value as escaped text; numbers with four significant digits."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return html.escape(str(value), quote=True)


def phase(name: str) -> str:
    """Returns the name of a phase in its colour."""
    colour = _COLOURS.get(name)
    return f'<span style="color:{colour}">{text(name)}</span>' if colour else text(name)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table. The cells are HTML already."""
    head = "".join(f'<th style="text-align:left">{text(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def link(url: str, name: Any) -> str:
    """Returns a link to a page of the server."""
    return f'<a href="{html.escape(url, quote=True)}" target="_blank" rel="noopener">{text(name)}</a>'


def facts(pairs: Iterable[Tuple[str, str]]) -> str:
    """Returns a table of names and values without a head. The values are HTML already."""
    rows = "".join(f'<tr><th style="text-align:left">{text(name)}</th><td style="text-align:left">{value}</td></tr>' for name, value in pairs)
    return f"<table><tbody>{rows}</tbody></table>"


def curve(name: str, points: Sequence[Point]) -> str:
    """Returns an SVG of a curve, with its first and last step and its range of values."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if not finite:
        return f"<div>{text(name)}: no points</div>"
    left, right = finite[0][0], finite[-1][0]
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    path = " ".join(f"{_scaled(x, left, right, WIDTH):.1f},{HEIGHT - _scaled(y, low, high, HEIGHT):.1f}" for x, y in finite)
    mark = f'<polyline points="{path}" fill="none" stroke="#3b82d6" stroke-width="1.5"/>'
    if len(finite) == 1:
        x, y = path.split(",")
        mark = f'<circle cx="{x}" cy="{y}" r="2" fill="#3b82d6"/>'
    caption = f"{text(name)}: {text(float(finite[-1][1]))} at step {text(float(right))}, range {text(float(low))} to {text(float(high))}"
    return (
        f'<figure style="display:inline-block;margin:4px"><svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{text(name)}" style="border:1px solid #8884">{mark}</svg><figcaption style="font-size:smaller">{caption}</figcaption></figure>'
    )


def _scaled(value: float, low: float, high: float, size: int) -> float:
    inner = size - 2 * MARGIN
    return MARGIN + (inner / 2 if high == low else (value - low) / (high - low) * inner)


def job_row(job: Mapping[str, Any], url: str) -> List[str]:
    """Returns the cells of a job in a list."""
    progress = job.get("progress") or {}
    waiting = job.get("waiting") or {}
    return [
        link(url, job["name"]),
        phase(job["phase"]),
        steps(progress),
        text(progress.get("loss")),
        text(job.get("failure") or waiting.get("message")),
    ]


def steps(progress: Mapping[str, Any]) -> str:
    """Returns the steps so far, of the total if it is known."""
    step: Optional[int] = progress.get("step")
    total = progress.get("total_steps")
    if step is None:
        return ""
    return text(step) if total is None else f"{text(step)} of {text(total)}"
