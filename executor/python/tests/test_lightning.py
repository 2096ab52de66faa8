import pathlib
import tempfile
import unittest
import warnings

import muster

from .daemon import Daemon

try:
    import torch
    import lightning.pytorch as lightning
    from lightning.pytorch.loops import training_epoch_loop

    from muster.lightning import MusterCallback, last_checkpoint
except ImportError:
    raise unittest.SkipTest("needs lightning and torch: MUSTER_PYTHON names a python with them") from None

BATCHES = 12
# Lightning 2.2 repeats the batch after which a checkpoint was saved. Newer versions know the case.
REPEATED = 0 if hasattr(training_epoch_loop, "RestartStage") else 1


class Line(lightning.LightningModule):
    """y = wx"""

    def __init__(self, job=None, stop_at=None, event="_stop"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.job, self.stop_at, self.event = job, stop_at, event
        self.seen, self.validated = [], 0

    def training_step(self, batch, index):
        self.seen.append(self.global_step + 1)
        if self.global_step + 1 == self.stop_at:
            getattr(self.job, self.event).set()
        loss = ((self.weight * batch - 2 * batch) ** 2).mean()
        self.log_dict({"train/loss": loss, "acc@1": 0.5})
        return loss

    def validation_step(self, batch, index):
        self.validated += 1
        self.log("val_loss", (self.weight - 2).abs().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        warnings.simplefilter("ignore")

    def fit(self, job, model, resume=None, every_n_steps=None, epochs=1):
        callback = MusterCallback(every_n_steps, self.folder, job)
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
            callbacks=[callback],
            num_sanity_val_steps=0,
        )
        loader = torch.utils.data.DataLoader(torch.arange(float(BATCHES)).reshape(-1, 1))
        trainer.fit(model, loader, torch.utils.data.DataLoader(torch.ones(2, 1)), ckpt_path=resume)
        return callback, trainer.global_step

    def test_stopped_training_continues_at_its_next_step(self):
        with Daemon() as daemon:
            job = muster.init(False, daemon.environment())
            model = Line(job, 5)
            callback, step = self.fit(job, model)
            self.assertEqual((callback.stopped, step, daemon.checkpoints(), model.validated), (True, 5, [5], 0))
            saved = last_checkpoint(self.folder)
            self.assertTrue(saved.endswith("step-5.ckpt"))
        with Daemon() as daemon:
            model = Line()
            callback, step = self.fit(muster.init(False, daemon.environment()), model, saved)
            self.assertEqual((callback.stopped, step, model.seen[0]), (False, BATCHES + REPEATED, 6))
            points = daemon.points()
            self.assertEqual(len([at for at, name, _ in points if name == "train/loss"]), BATCHES + REPEATED - 5)
            self.assertTrue({"acc_1", "val_loss"} <= {name for _, name, _ in points}, points)

    def test_request_saves_and_the_training_continues(self):
        with Daemon() as daemon:
            job = muster.init(False, daemon.environment())
            callback, step = self.fit(job, Line(job, 4, "_request"))
            self.assertEqual((callback.stopped, step, daemon.checkpoints()), (False, BATCHES, [4]))

    def test_regular_checkpoints_are_pruned(self):
        with Daemon() as daemon:
            self.fit(muster.init(False, daemon.environment()), Line(), every_n_steps=3)
            self.assertEqual(daemon.checkpoints(), [3, 6, 9, 12])
        self.assertEqual(sorted(path.name for path in pathlib.Path(self.folder).iterdir()), ["step-12.ckpt", "step-9.ckpt"])
        self.assertTrue(last_checkpoint(self.folder).endswith("step-12.ckpt"))

    def test_registered_checkpoints_are_not_removed(self):
        with Daemon() as daemon:
            job = muster.init(False, daemon.environment(MUSTER_CHECKPOINT_DIR=self.folder))
            self.fit(job, Line(), every_n_steps=3)
            self.assertEqual([body["path"] for body in daemon.bodies("/checkpoint")], [f"step-{step}.ckpt" for step in (3, 6, 9, 12)])
        self.assertEqual(len(list(pathlib.Path(self.folder).iterdir())), 4)
