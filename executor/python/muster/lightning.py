"""Callback for Lightning, from the package `lightning` or `pytorch_lightning`.

    from muster.lightning import MusterCallback, last_checkpoint

    trainer = Trainer(callbacks=[MusterCallback()], ...)
    trainer.fit(model, data, ckpt_path=last_checkpoint())
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys
from typing import Any, List, Mapping, Optional, Tuple

try:
    # The classes of the two packages do not work together, so the one in use decides.
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
        from pytorch_lightning.loggers import Logger
    else:
        try:
            from lightning.pytorch import Callback  # type: ignore[assignment,unused-ignore]
            from lightning.pytorch.loggers import Logger  # type: ignore[assignment,unused-ignore]
        except ModuleNotFoundError:
            from pytorch_lightning import Callback  # type: ignore[assignment,unused-ignore]
            from pytorch_lightning.loggers import Logger  # type: ignore[assignment,unused-ignore]
except ImportError as error:
    raise ImportError("muster.lightning needs Lightning: pip install lightning") from error

from ._context import Context, init, scalars_of

__all__ = ["MusterCallback", "MusterLogger", "last_checkpoint"]

#: Number of own checkpoints that stay in a folder that Muster does not manage.
KEPT = 2


def _folder(folder: Optional[str]) -> pathlib.Path:
    return init().checkpoint_dir / "lightning" if folder is None else pathlib.Path(folder)


def _checkpoints(folder: pathlib.Path) -> List[Tuple[int, pathlib.Path]]:
    """Returns the complete checkpoints with their steps, oldest first."""
    found = ((re.fullmatch(r"step-(\d+)\.ckpt", path.name), path) for path in folder.glob("step-*.ckpt"))
    return sorted((int(name.group(1)), path) for name, path in found if name)


def last_checkpoint(folder: Optional[str] = None) -> Optional[str]:
    """Returns the newest checkpoint of the callback. None in the first start."""
    found = _checkpoints(_folder(folder))
    return str(found[-1][1]) if found else None


class MusterLogger(Logger):  # type: ignore[misc,unused-ignore]
    """Reports everything that `self.log` sends to loggers, with Lightning's step."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._job = context

    @property
    def name(self) -> str:
        """Name that Lightning shows."""
        return "muster"

    @property
    def version(self) -> str:
        """Id of the job."""
        return self._job.job_id or "0"

    def log_metrics(self, metrics: Mapping[str, Any], step: Optional[int] = None) -> None:
        """Reports the scalars. All ranks do, with which Muster finds hangs."""
        scalars = scalars_of(metrics)
        if scalars:
            self._job.report(step or 0, scalars)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Does nothing: the job document has the parameters."""

    def finalize(self, status: str) -> None:
        """Sends buffered points."""
        self._job.finish()


class MusterCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Reports logged scalars with their step. Saves when the job is asked for a checkpoint, and ends
    the training when the job must stop.

    `stopped` is then true: the program should exit without further work, because the grace period
    runs. With `every_n_steps` it also saves regularly. Checkpoints are in `folder`, by default in
    the job's checkpoint folder, and :func:`last_checkpoint` finds the newest one. Checkpoints in the
    job's checkpoint folder are registered and pruned by the job document; elsewhere the newest two
    stay. Lightning does not end before `min_epochs` and `min_steps` of the Trainer.
    """

    def __init__(self, every_n_steps: Optional[int] = None, folder: Optional[str] = None, context: Optional[Context] = None) -> None:
        super().__init__()
        self.job = context or init()
        #: Whether the training ended because the job must stop.
        self.stopped = False
        self._every_n_steps = every_n_steps
        self._folder = folder
        self._saved_step = -1

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Adds the logger to those of the Trainer."""
        if not any(isinstance(logger, MusterLogger) for logger in trainer.loggers):
            trainer.loggers = [*trainer.loggers, MusterLogger(self.job)]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Saves and stops at the same batch on all ranks."""
        step = trainer.global_step
        is_due = self._every_n_steps is not None and step > 0 and step % self._every_n_steps == 0
        is_asked = _on_any_rank(trainer, self.job.should_checkpoint())
        # A stop is a request too, so most steps need one reduction.
        must_stop = is_asked and _on_any_rank(trainer, self.job.should_stop())
        # With accumulated gradients a step has several batches.
        if (is_due or is_asked) and step != self._saved_step:
            self._save(trainer, step)
        if must_stop:
            self.stopped = trainer.should_stop = True
            # Lightning validates before an early end. The grace period is for the checkpoint.
            trainer.limit_val_batches = 0

    def _save(self, trainer: Any, step: int) -> None:
        folder = _folder(self._folder)
        complete, part = folder / f"step-{step}.ckpt", folder / f"step-{step}.part"
        registered = _registered(self.job, complete)
        if trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
        trainer.strategy.barrier("muster-folder")
        trainer.save_checkpoint(str(part))
        if trainer.is_global_zero:
            _remove(complete)
            os.replace(part, complete)
            if registered is None:
                for _, old in _checkpoints(folder)[:-KEPT]:
                    _remove(old)
        trainer.strategy.barrier("muster-checkpoint")
        self._saved_step = step
        self.job.checkpointed(step, registered)


def _registered(job: Context, path: pathlib.Path) -> Optional[pathlib.Path]:
    """Returns the path, unless it is in a folder that Muster does not manage."""
    try:
        path.relative_to(job.checkpoint_dir)
    except (ValueError, RuntimeError):
        return None
    return path


def _on_any_rank(trainer: Any, flag: bool) -> bool:
    if trainer.world_size == 1:
        return flag
    return bool(trainer.strategy.reduce_boolean_decision(flag, all=False))


def _remove(path: pathlib.Path) -> None:
    """Removes a checkpoint, which is a folder if it is sharded."""
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
