"""Upgrades chart and programs to the next version while a job trains. The migration runs as a hook
under the daemons of the previous version. Then the API server and the schedulers are replaced one
after the other, and finally the executor, whose tasks write a checkpoint and resume. Needs the
previous version in MUSTER_CHART_BEFORE, and its programs in MUSTER_PROGRAMS_BEFORE.
"""

import os
import pathlib
import time

from kubelet import until
from stage import JOB, STEPS, Stage, programs_in


class Upgrade(Stage):
    def test_upgrade_interrupts_a_job_only_by_executor_replacement(self):
        before = pathlib.Path(os.environ["MUSTER_CHART_BEFORE"])
        self.prepare("hostPath", before, programs_in("MUSTER_PROGRAMS_BEFORE"))
        self.migrate()
        api = self.api()
        schedulers = [self.scheduler(), self.scheduler()]
        self.token = api.run("muster-api", "bootstrap").stdout.strip()
        executor = self.executor()
        (self.root / "job.yaml").write_text(JOB)
        self.muster("submit", str(self.root / "job.yaml"))
        self.trained(60)

        # helm upgrade: the hook runs first, beside the daemons of the previous version.
        self.machine.items, self.machine.programs = self.rendered(), programs_in("MUSTER_PROGRAMS")
        self.migrate()
        # The previous version refuses a newer schema, so there was something to migrate.
        self.machine.programs = programs_in("MUSTER_PROGRAMS_BEFORE")
        self.assertNotEqual(self.machine.start("Job", "muster-migrate").process.wait(60), 0)
        self.machine.programs = programs_in("MUSTER_PROGRAMS")
        self.trained(120)
        began = time.monotonic()
        api.delete()
        api = self.api()
        print(f"REST was away for {time.monotonic() - began:.1f} s; a release has two of it")
        for old in list(schedulers):
            schedulers.append(self.scheduler())
            schedulers.remove(old)
            leads = " leading" in old.log.read_text()
            began = time.monotonic()
            old.delete()
            if leads:
                self.leader(schedulers)
                print(f"the next scheduler leads {time.monotonic() - began:.1f} s after the one before was told to go")
        self.trained(240)
        job = self.job()
        # The processes are unchanged; they belong to an executor of the previous version.
        self.assertEqual((job["revision"], len(job["tasks"]), job["failures"]), (1, 2, 0))
        self.assertIsNone(executor.process.poll())

        self.assertLess(executor.delete(), 20)
        executor = self.executor()
        job = until("the end", lambda: (job := self.job())["phase"] in ("succeeded", "failed") and job, 240)
        self.assertEqual((job["phase"], job["progress"]["step"], job["failures"]), ("succeeded", STEPS, 0))
        events = [entry["event"] for entry in self.muster("events", "through-it-all")]
        (resumed,) = (event["from_step"] for event in events if event["kind"] == "resumed")
        self.assertGreaterEqual(resumed, 240)
