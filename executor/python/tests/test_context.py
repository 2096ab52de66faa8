import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import muster
from muster import _context

from .daemon import Daemon, until
from .server import Server

PACKAGE = pathlib.Path(__file__).resolve().parents[1]


class Worlds(unittest.TestCase):
    def test_program_outside_is_rank_0_of_1(self):
        job = muster.init(False, {})
        self.assertEqual(job.world(), (0, 1, 0, 0))
        job.report(1, loss=2)
        self.assertEqual(job.checkpoint_dir, pathlib.Path("checkpoints"))

    def test_world_is_that_of_the_variables(self):
        names = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MUSTER_RESTART_COUNT": "2", "MUSTER_RANK": "0", "MUSTER_WORKERS": "2"}
        world = muster.init(False, names).world()
        self.assertEqual((world.rank, world.size, world.local_rank, world.restart_count), (3, 8, 1, 2))

    def test_init_returns_the_same_context(self):
        before = signal.getsignal(signal.SIGTERM)
        self.addCleanup(signal.signal, signal.SIGTERM, before)
        first = muster.init(handle_sigterm=False)
        self.assertIs(signal.getsignal(signal.SIGTERM), before)
        self.assertIs(muster.init(), first)
        self.assertIsNot(signal.getsignal(signal.SIGTERM), before)
        self.assertEqual(muster.world(), first.world())


class Artifacts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "deep").mkdir()
        (self.folder / "a.txt").write_text("a")
        (self.folder / "deep" / "b c.txt").write_text("bc")

    def sent(self, act):
        with Daemon() as daemon:
            act(muster.init(False, daemon.environment()))
            return [(request.method, request.path, request.body) for request in daemon.requests if "artifacts" in request.path]

    def test_file_is_sent_under_its_name(self):
        sent = self.sent(lambda job: job.log_artifact(self.folder / "a.txt"))
        self.assertEqual(sent, [("PUT", "/muster/v1/artifacts/a.txt", b"a")])
        sent = self.sent(lambda job: job.log_artifact(self.folder / "a.txt", "plots/x y.txt"))
        self.assertEqual(sent, [("PUT", "/muster/v1/artifacts/plots/x y.txt", b"a")])

    def test_files_of_a_folder_keep_their_places(self):
        sent = self.sent(lambda job: job.log_artifacts(self.folder, "all"))
        names = [path for _, path, _ in sent]
        self.assertEqual(names, ["/muster/v1/artifacts/all/a.txt", "/muster/v1/artifacts/all/deep/b c.txt"])

    def test_refusal_names_the_artifact_and_is_not_repeated(self):
        with Server((403, {"message": "limit job_artifacts"})) as server:
            names = {"MUSTER_JOB_ID": "1", "MUSTER_TRACKING_URI": server.url, "MUSTER_TRACKING_TOKEN": "t"}
            job = muster.init(False, names)
            with self.assertRaisesRegex(muster.ReportError, "a.txt.*job_artifacts"):
                job.log_artifact(self.folder / "a.txt")

    def test_outside_nothing_is_sent_and_a_missing_file_is_an_error(self):
        job = muster.init(False, {})
        job.log_artifacts(self.folder)
        self.assertEqual(job.output_dir, pathlib.Path("outputs"))
        with self.assertRaises(FileNotFoundError):
            job.log_artifact(self.folder / "none")


class Reports(unittest.TestCase):
    def report(self, *arguments, **metrics):
        with Daemon() as daemon:
            muster.init(False, daemon.environment()).report(*arguments, **metrics)
            return [body["metrics"] for body in daemon.bodies("log-batch")]

    def test_metrics_have_any_name(self):
        [points] = self.report(3, {"train/f1": 0.5, "loss": 9}, loss=1, bad=float("nan"), huge=float("-inf"))
        found = {point["key"]: point["value"] for point in points}
        self.assertEqual(found, {"train/f1": 0.5, "loss": 1.0, "bad": "NaN", "huge": "-Infinity"})
        self.assertEqual({point["step"] for point in points}, {3})

    def test_a_metric_may_be_named_like_the_parameter(self):
        [[point]] = self.report(1, scalars=2)
        self.assertEqual((point["key"], point["value"]), ("scalars", 2.0))

    def test_many_metrics_are_sent_in_parts(self):
        parts = self.report(1, {f"m{number}": number for number in range(1001)})
        self.assertEqual([len(part) for part in parts], [1000, 1])

    def test_refused_name_is_an_error(self):
        with Server(lambda request: (200, {"stopping": True}) if "stopping" in request.path else (400, {"message": "key is wrong"})) as server:
            job = muster.init(False, {"MUSTER_TRACKING_URI": server.url})
            with self.assertRaisesRegex(muster.ReportError, "answered 400: .*key is wrong"):
                job.report(1, {"acc@1": 1})

    def test_scalars_of_a_library_are_cleaned(self):
        values = {"acc@1": 1, "text": "3", "none": None, "list": [1], "größe": True, "": 2, "x" * 300: 3}
        self.assertEqual(_context.scalars_of(values), {"acc_1": 1.0, "größe": 1.0, "_": 2.0, "x" * 250: 3.0})

    def test_end_of_the_process_sends_buffered_points(self):
        script = "import muster; muster.report(1, loss=1)"
        with Daemon() as daemon:
            environment = {**os.environ, **daemon.environment(), "PYTHONPATH": str(PACKAGE)}
            subprocess.run([sys.executable, "-c", script], env=environment, check=True)
            self.assertEqual([body["status"] for body in daemon.bodies("runs/update")], ["FINISHED"])
            subprocess.run([sys.executable, "-c", script + "; muster.init().finish()"], env=environment, check=True)
            self.assertEqual(len(daemon.bodies("runs/update")), 2)


class Stops(unittest.TestCase):
    def test_daemon_announces_the_stop(self):
        with Daemon(stopping=True) as daemon:
            job = muster.init(False, daemon.environment())
            self.assertTrue(job.wait_for_stop(5))
            self.assertTrue(job.should_stop() and job.should_checkpoint())

    def test_request_lasts_until_the_checkpoint(self):
        with Daemon(checkpoint_requested=True) as daemon:
            job = muster.init(False, daemon.environment())
            until(job.should_checkpoint)
            self.assertFalse(job.should_stop())
            job.checkpointed(7)
            self.assertEqual(daemon.bodies("/checkpoint"), [{"step": 7}])
            time.sleep(0.1)
            self.assertFalse(job.should_checkpoint())

    def test_checkpoint_is_reported_with_its_path(self):
        with Daemon() as daemon:
            environment = {**daemon.environment(), "MUSTER_CHECKPOINT_DIR": "/c/job"}
            job = muster.init(False, environment)
            for given in ("a/step-1.pt", "/c/job/a/step-1.pt", "./a/../a/step-1.pt"):
                job.checkpointed(1, given)
            self.assertEqual(daemon.bodies("/checkpoint"), [{"step": 1, "path": "a/step-1.pt"}] * 3)
            for outside in ("/c/other/step-1.pt", "../step-1.pt"):
                self.assertRaises(ValueError, job.checkpointed, 1, outside)

    def test_signal_does_not_end_the_process(self):
        script = "import muster, os, signal; muster.init(); os.kill(os.getpid(), signal.SIGTERM); print(muster.init().wait_for_stop(5), muster.should_stop())"
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        said = subprocess.run([sys.executable, "-c", script], env=environment, check=True, stdout=subprocess.PIPE, encoding="utf-8")
        self.assertEqual(said.stdout.split(), ["True", "True"])


class Isolation(unittest.TestCase):
    def test_reports_pass_by_the_proxy_of_the_job(self):
        with Daemon() as daemon, Server((403, b"")) as proxy, mock.patch.dict(os.environ, {"http_proxy": proxy.url}):
            context = muster.init(environment=daemon.environment(), handle_sigterm=False)
            context.report(1, loss=0.5)
            self.assertEqual(daemon.points(), [(1, "loss", 0.5)])
            self.assertEqual(proxy.requests, [])

    def test_forked_process_ends_at_sigterm(self):
        script = """
import multiprocessing, time, muster
muster.init()
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
child.start()
time.sleep(0.2)
child.terminate()
child.join(5)
assert not child.is_alive()
"""
        done = subprocess.run([sys.executable, "-c", script], timeout=30, check=False, cwd=PACKAGE)
        self.assertEqual(done.returncode, 0)
