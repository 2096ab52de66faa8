"""Callback for the Trainer of Hugging Face's Transformers.

    from muster.transformers import MusterCallback, last_checkpoint, output_dir

    arguments = TrainingArguments(output_dir=output_dir(), ...)
    trainer = Trainer(model, arguments, callbacks=[MusterCallback()], ...)
    trainer.train(resume_from_checkpoint=last_checkpoint())
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, Mapping, Optional

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError("muster.transformers needs Transformers: pip install transformers") from error

from . import _ranks
from ._context import Context, init, scalars_of

__all__ = ["MusterCallback", "last_checkpoint", "output_dir"]

#: File that the Trainer writes after the others of a checkpoint.
LAST_FILE = "trainer_state.json"


def output_dir() -> str:
    """Returns the folder for the Trainer's checkpoints, which is the same in each start."""
    return str(init().checkpoint_dir / "transformers")


def last_checkpoint(folder: Optional[str] = None) -> Optional[str]:
    """Returns the newest complete checkpoint of the folder, by default of :func:`output_dir`. None
    in the first start."""
    place = pathlib.Path(output_dir() if folder is None else folder)
    found = [(int(name.group(1)), path) for path in place.glob("checkpoint-*") for name in [re.fullmatch(r"checkpoint-(\d+)", path.name)] if name]
    complete = [path for _, path in sorted(found) if (path / LAST_FILE).is_file()]
    return str(complete[-1]) if complete else None


class MusterCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Reports logged scalars with the global step. Saves when the job is asked for a checkpoint, and
    ends the training when the job must stop.

    `stopped` is then true: the program should exit without further work, because the grace period
    runs. Checkpoints of the Trainer's own schedule are reported too.

    With `register` they are reported with their path, so that Muster keeps them in a bucket too, and
    prunes them by `checkpoint` of the job document. `output_dir` must be below the job's checkpoint
    folder then. Do not combine it with `load_best_model_at_end`.
    """

    def __init__(self, context: Optional[Context] = None, register: bool = False) -> None:
        self.job = context or init()
        self._register = register
        #: Whether the training ended because the job must stop.
        self.stopped = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Mapping[str, Any]] = None, **_: Any) -> None:
        """Reports the scalars. All ranks do, with which Muster finds hangs."""
        scalars = scalars_of(logs or {})
        if "train_runtime" in scalars and "train_loss" in scalars:
            # The summary of the training has the mean of all steps, which is no point of the curve.
            scalars["train_loss_mean"] = scalars.pop("train_loss")
        if scalars:
            self.job.report(state.global_step, scalars)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Asks for a checkpoint, and for the end, at the same step on all ranks."""
        # A stop is a request too, so most steps need one reduction.
        if not _ranks.any_rank(self.job.should_checkpoint()):
            return control
        control.should_save = True
        if _ranks.any_rank(self.job.should_stop()):
            self.stopped = control.should_training_stop = True
            # The grace period is for the checkpoint.
            control.should_evaluate = False
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Reports the checkpoint after all ranks have written their parts."""
        _ranks.barrier()
        saved = pathlib.Path(args.output_dir).absolute() / f"checkpoint-{state.global_step}"
        self.job.checkpointed(state.global_step, saved if self._register else None)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Sends buffered points."""
        self.job.finish()
