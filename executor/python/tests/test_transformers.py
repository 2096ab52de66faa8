import pathlib
import tempfile
import types
import unittest

import muster

from .daemon import Daemon

try:
    import torch
    import transformers

    from muster.transformers import MusterCallback, last_checkpoint
except ImportError:
    raise unittest.SkipTest("needs transformers and torch: MUSTER_PYTHON names a python with them") from None

STEPS = 12


class Line(torch.nn.Module):
    """y = wx"""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels):
        return {"loss": ((self.weight * x - labels) ** 2).mean()}


class StopAt(transformers.TrainerCallback):
    """Stops the job, or asks it for a checkpoint, at the end of a step."""

    def __init__(self, job, step, event):
        self.job, self.step, self.event = job, step, event

    def on_step_begin(self, args, state, control, **_):
        if state.global_step + 1 == self.step:
            getattr(self.job, self.event).set()


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def train(self, job, stop_at=None, event="_stop", resume=None):
        arguments = transformers.TrainingArguments(
            output_dir=self.folder,
            max_steps=STEPS,
            per_device_train_batch_size=2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            learning_rate=0.1,
        )
        data = [{"x": torch.tensor([float(x)]), "labels": torch.tensor([2.0 * x])} for x in range(8)]
        callback = MusterCallback(job)
        callbacks = [callback] if stop_at is None else [StopAt(job, stop_at, event), callback]
        trainer = transformers.Trainer(model=Line(), args=arguments, train_dataset=data, callbacks=callbacks)
        trainer.train(resume_from_checkpoint=resume)
        return callback, trainer.state.global_step

    def test_stopped_training_continues_at_its_next_step(self):
        with Daemon() as daemon:
            job = muster.init(False, daemon.environment())
            callback, step = self.train(job, stop_at=5)
            self.assertEqual((callback.stopped, step, daemon.checkpoints()), (True, 5, [5]))
            saved = last_checkpoint(self.folder)
            self.assertTrue(saved.endswith("checkpoint-5"))
        with Daemon() as daemon:
            callback, step = self.train(muster.init(False, daemon.environment()), resume=saved)
            self.assertEqual((callback.stopped, step), (False, STEPS))
            self.assertEqual([at for at, name, _ in daemon.points() if name == "loss"], list(range(6, STEPS + 1)))
            # The summary's mean is no point of the curve.
            names = {name for _, name, _ in daemon.points()}
            self.assertTrue({"train_loss_mean", "learning_rate", "epoch"} <= names and "train_loss" not in names, names)

    def test_request_saves_and_the_training_continues(self):
        with Daemon() as daemon:
            callback, step = self.train(muster.init(False, daemon.environment()), 4, "_request")
            self.assertEqual((callback.stopped, step, daemon.checkpoints()), (False, STEPS, [4]))

    def test_incomplete_checkpoint_is_passed_over(self):
        for name in ("checkpoint-3", "checkpoint-20", "checkpoint-100", "checkpoint-x"):
            pathlib.Path(self.folder, name).mkdir()
        for name in ("checkpoint-3", "checkpoint-20", "checkpoint-x"):
            pathlib.Path(self.folder, name, "trainer_state.json").write_text("{}")
        self.assertEqual(pathlib.Path(last_checkpoint(self.folder)).name, "checkpoint-20")
        self.assertIsNone(last_checkpoint(self.folder + "/none"))

    def test_stop_skips_the_evaluation(self):
        job = muster.init(False, {})
        job._stop.set()
        control = types.SimpleNamespace(should_save=False, should_training_stop=False, should_evaluate=True)
        MusterCallback(job).on_step_end(None, None, control)
        self.assertEqual((control.should_save, control.should_training_stop, control.should_evaluate), (True, True, False))
