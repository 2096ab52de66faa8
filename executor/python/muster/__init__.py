"""What a program that runs under Muster may want to know and to say. Nothing but the standard library, and nothing happens on import.

    import muster

    job = muster.init()
    for step in range(start, steps):
        loss = train_one_step()
        job.report(step, loss=loss)
        if job.should_checkpoint():
            save(job.checkpoint_dir)
            break

Outside of Muster the same program runs alone: rank 0 of 1, checkpoints in ./checkpoints, reports go nowhere, and nobody stops it but a
SIGTERM.
"""

from ._context import Context, ReportError, init

__all__ = ["Context", "ReportError", "init"]
