"""Documents of jobs and studies, as the server takes them."""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

#: A document as a map, the path of a YAML or JSON file, or its text.
Source = Union[Mapping[str, Any], str, "os.PathLike[str]"]
#: A number of workers, or the range in which the scheduler chooses it.
Workers = Union[int, Tuple[int, int], str]

#: Maximum length of a study's name. That of a job may be longer.
MAX_NAME = 55
JSON, YAML = "application/json", "application/yaml"


class Document(NamedTuple):
    """Text of a document with its content type."""

    text: str
    content_type: str


def read(source: Source) -> Document:
    """Returns the document. A text without a line break is a path if it ends as one, or if the file
    exists. The server parses YAML, because Python has no reader of it.

    Raises :class:`FileNotFoundError`.
    """
    if isinstance(source, Mapping):
        return Document(json.dumps(source), JSON)
    if isinstance(source, str) and not _is_path(source):
        return Document(source, JSON if _is_json(source) else YAML)
    path = pathlib.Path(source)
    text = path.read_text(encoding="utf-8")
    return Document(text, JSON if path.suffix == ".json" or _is_json(text) else YAML)


def _is_path(text: str) -> bool:
    if "\n" in text or text.lstrip().startswith("{"):
        return False
    return text.endswith((".yaml", ".yml", ".json")) or os.path.exists(text)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def of_program(
    argv: Sequence[Any],
    *,
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
) -> Dict[str, Any]:
    """Returns the job document of a program, as `muster run` writes it. It contains no code.

    `env` is a map, or a list of names whose values are those of this process. `fields` sets other
    fields by their path, such as `{"retries": 0, "stop.wall_minutes": 60}`.
    """
    if isinstance(argv, str) or not argv:
        raise ValueError("argv is a list of the program and its arguments, such as ['python3', 'train.py']")
    words = [str(word) for word in argv]
    low, high = worker_range(workers)
    command: Dict[str, Any] = {"argv": words}
    if requirements is not None:
        command["python"] = {"requirements": requirements}
    if env is not None:
        command["env"] = _variables(env)
    document: Dict[str, Any] = {
        "version": "muster/v1",
        "name": name or name_of(words),
        "command": command,
        "scale": {"workers": {"min": low, "max": high}},
    }
    given = {
        "gpus": gpus,
        "gpu_kinds": list(gpu_kinds) or None,
        "cpu_milli": None if cpus is None else math.ceil(cpus * 1000),
        "memory_bytes": memory,
    }
    worker = {field: value for field, value in given.items() if value is not None}
    if worker:
        document["resources"] = {"worker": worker}
    if image is not None:
        document["pod"] = {"image": image}
    for path, value in (fields or {}).items():
        assign(document, path, value)
    return document


def _variables(env: Union[Mapping[str, Any], Iterable[str]]) -> Dict[str, str]:
    if isinstance(env, str):
        raise ValueError(f"env is {env!r}; expected a map, or a list of names such as [{env!r}]")
    if isinstance(env, Mapping):
        return {str(name): str(value) for name, value in env.items()}
    names = list(env)
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise ValueError(f"env names {', '.join(missing)}, which this process does not have; give a map of names and values")
    return {name: os.environ[name] for name in names}


def worker_range(workers: Workers) -> Tuple[int, int]:
    """Returns the smallest and largest number of workers of `4`, `(1, 8)` or `"1:8"`."""
    if isinstance(workers, str):
        parts = workers.split(":")
        numbers = [int(part) for part in parts] if all(part.isdigit() for part in parts) else []
    else:
        numbers = [workers] if isinstance(workers, int) else list(workers)
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) != 2 or not 0 < numbers[0] <= numbers[1]:
        raise ValueError(f"workers is {workers!r}; expected a number such as 4, or a range such as (1, 8)")
    return numbers[0], numbers[1]


def assign(document: Dict[str, Any], path: str, value: Any) -> None:
    """Sets a field by its path, such as `scale.workers.max`."""
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise ValueError(f"the field {path} lies in {name}, which is no map")
    place[last] = value


def name_of(argv: Sequence[str]) -> str:
    """Returns a job's name from its program: that of the first script, of the module after `-m`, or
    of the program itself. The same rule as that of `muster run`."""
    scripts = (pathlib.PurePath(word).stem for word in argv if pathlib.PurePath(word).suffix in (".py", ".sh"))
    modules = (argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "-m")
    named = next(scripts, None) or next(modules, None) or pathlib.PurePath(argv[0]).stem
    return re.sub("[^a-z0-9]", "-", named.lower())[:MAX_NAME].strip("-") or "run"
