import pathlib
import tempfile
import unittest

import muster
from muster import Client, errors

from .daemon import Daemon
from .server import Server, job, page

try:
    import optuna

    from muster.optuna import JobObjective, MusterCallback, storage
except ImportError:
    raise unittest.SkipTest("needs optuna: MUSTER_PYTHON names a python with it") from None

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Cluster(Server):
    """Stands for a cluster whose jobs log one point for each look at them."""

    def __init__(self, curves, fails=()):
        self.curves, self.fails = curves, fails
        self.looks, self.cancelled = {}, []
        super().__init__(self.answered)

    def answered(self, request):
        *_, collection, name = [part for part in request.path.split("/") if part][:4]
        if request.method == "POST" and name == "jobs":
            return (201, self.view(request.json()["name"]))
        name = request.path.split("/")[4]
        if request.path.endswith("/cancel"):
            self.cancelled.append(name)
            return (202, self.view(name))
        if request.path.endswith("/points"):
            seen = self.curves[int(name)][: self.looks.get(name, 0)]
            points = [{"step": step, "last": value, "min": value, "max": value} for step, value in enumerate(seen)]
            return (200, page({"name": "val_loss", "bucket_steps": 1, "points": points}))
        self.looks[name] = self.looks.get(name, 0) + 1
        return (200, self.view(name))

    def view(self, name):
        ended = "failed" if int(name) in self.fails else "succeeded"
        has_ended = self.looks.get(name, 0) >= len(self.curves[int(name)])
        phase = "cancelled" if name in self.cancelled else ended if has_ended else "running"
        return job(id=name, name=name, phase=phase)


class Jobs(unittest.TestCase):
    def search(self, cluster, trials, pruner=None, **options):
        client = Client(cluster.url, "t")

        def submit(trial):
            trial.suggest_float("lr", 0, 1)
            return client.submit({"name": str(trial.number)})

        study = optuna.create_study(direction="minimize", pruner=pruner)
        objective = JobObjective(submit, "val_loss", poll_s=0, **options)
        study.optimize(objective, n_trials=trials, catch=(errors.JobFailed,))
        return study

    def test_value_of_a_trial_is_that_of_its_job(self):
        with Cluster([[3.0, 1.0, 2.0], [5.0, 4.0]]) as cluster:
            study = self.search(cluster, 2)
            self.assertEqual([trial.value for trial in study.trials], [2.0, 4.0])
            self.assertEqual(study.trials[0].intermediate_values, {0: 3.0, 1: 1.0, 2: 2.0})
            self.assertEqual(study.best_trial.user_attrs["muster_job"], "0")
        with Cluster([[3.0, 1.0, 2.0]]) as cluster:
            self.assertEqual(self.search(cluster, 1, reduce="min").best_value, 1.0)

    def test_pruned_trial_cancels_its_job(self):
        curves = [[1.0, 0.5, 0.2], [9.0, 9.0, 9.0, 9.0]]
        pruner = optuna.pruners.MedianPruner(n_startup_trials=1)
        with Cluster(curves) as cluster:
            study = self.search(cluster, 2, pruner)
            self.assertEqual([trial.state.name for trial in study.trials], ["COMPLETE", "PRUNED"])
            self.assertEqual(cluster.cancelled, ["1"])

    def test_failed_job_is_a_failed_trial(self):
        with Cluster([[1.0], [2.0]], fails=[0]) as cluster:
            self.assertEqual([trial.state.name for trial in self.search(cluster, 2).trials], ["FAIL", "COMPLETE"])

    def test_job_without_the_metric_is_named(self):
        with Cluster([[]]) as cluster, self.assertRaisesRegex(ValueError, "has not logged val_loss"):
            self.search(cluster, 1)

    def test_interrupted_study_cancels_its_job(self):
        class Interrupts(optuna.pruners.NopPruner):
            def prune(self, *_):
                raise KeyboardInterrupt

        with Cluster([[1.0] * 9]) as cluster:
            with self.assertRaises(KeyboardInterrupt):
                self.search(cluster, 1, Interrupts())
            self.assertEqual(cluster.cancelled, ["0"])


class Inside(unittest.TestCase):
    def test_study_reports_its_trials_and_stops(self):
        with Daemon() as daemon:
            job = muster.init(False, daemon.environment())
            callback = MusterCallback(context=job)

            def objective(trial):
                if trial.number == 2:
                    job._stop.set()
                return float(5 - trial.number)

            study = optuna.create_study()
            study.optimize(objective, n_trials=9, callbacks=[callback])
            self.assertEqual((len(study.trials), callback.stopped, daemon.checkpoints()), (3, True, [3]))
            self.assertEqual([value for _, name, value in daemon.points() if name == "best_value"], [5.0, 4.0, 3.0])

    def test_storage_continues_a_study(self):
        with tempfile.TemporaryDirectory() as folder:
            context = muster.init(handle_sigterm=False)
            self.addCleanup(setattr, context, "_checkpoint_dir", context._checkpoint_dir)
            context._checkpoint_dir = str(pathlib.Path(folder, "new"))
            for total in (2, 4):
                study = optuna.create_study(study_name="s", storage=storage(), load_if_exists=True)
                study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
                self.assertEqual(len(study.trials), total)
