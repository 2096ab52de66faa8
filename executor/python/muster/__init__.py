"""Helpers for programs that run under Muster.

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
"""

from ._context import Context, ReportError, init

__all__ = ["Context", "ReportError", "init"]
