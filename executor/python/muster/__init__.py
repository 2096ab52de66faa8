"""Python package of Muster: the interface of programs inside jobs, and the client of a server.

The package uses only the standard library, and its import has no side effects.

    import muster

    job = muster.init()
    for step in range(start, steps):
        loss = train_one_step()
        job.report(step, loss=loss)
        if job.should_checkpoint():
            save(job.checkpoint_dir)
            break

Outside of Muster the same program runs alone: as rank 0 of 1, with checkpoints in ./checkpoints.
Reports are discarded, and only SIGTERM stops it.

`muster.Client` submits and steers jobs from a notebook or a script. Tasks have only the interface
of programs, so there `muster.Client` raises :class:`ImportError`.
"""

from typing import TYPE_CHECKING, Any

from ._context import Context, ReportError, World, checkpointed, init, log_artifact, log_artifacts, report, should_checkpoint, should_stop, world

if TYPE_CHECKING:
    from .client import Client

__all__ = [
    "Client",
    "Context",
    "ReportError",
    "World",
    "checkpointed",
    "init",
    "log_artifact",
    "log_artifacts",
    "report",
    "should_checkpoint",
    "should_stop",
    "world",
]


def __getattr__(name: str) -> Any:
    # The client is imported at its first use, because tasks do not have it.
    if name != "Client":
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    try:
        from .client import Client
    except ImportError as error:
        raise ImportError("this copy of the package, which tasks receive, has no client: put executor/python of Muster's sources first in PYTHONPATH") from error
    return Client
