"""Life of the chart's pods: migration, probes, first token, a job. During the training the leading
scheduler is killed, and the executor's pod is first deleted and later killed.
"""

import json
import time

from kubelet import until
from stage import JOB, STEPS, Stage


class Story(Stage):
    def test_job_survives_its_pods(self):
        """The data folders are deleted with the pods."""
        self.tell("emptyDir")

    def test_job_survives_its_pods_with_a_node_folder(self):
        """The next pod reads the ledger and starts at once."""
        self.tell("hostPath")

    def tell(self, data):
        self.prepare(data)
        for _ in range(2):
            self.migrate()
        api = self.api()
        schedulers = [self.scheduler(), self.scheduler()]
        self.token = api.run("muster-api", "bootstrap").stdout.strip()
        executor = self.executor()
        (node,) = self.muster("nodes")
        self.assertEqual(node["name"], "node-1-example-com")
        self.assertEqual((node["capacity"]["cpu_milli"], node["capacity"]["memory_bytes"]), (2000, 2 << 30))
        (self.root / "job.yaml").write_text(JOB)
        self.muster("submit", str(self.root / "job.yaml"))

        self.trained(60)
        leader = self.leader(schedulers)
        leader.kill()
        began = time.monotonic()
        self.leader([pod for pod in schedulers if pod is not leader])
        print(f"the other scheduler leads {time.monotonic() - began:.1f} s after the leader was killed")
        self.trained(120)
        job = self.job()
        # The same processes continue: no task was placed or restarted.
        self.assertEqual((job["revision"], len(job["tasks"])), (1, 2))
        # It stops with a checkpoint of its step, within the grace period.
        self.assertLess(executor.delete(), 20)
        executor = self.executor()
        self.trained(300)
        executor.kill()
        executor = self.executor()
        job = until("the end", lambda: (job := self.job())["phase"] in ("succeeded", "failed") and job, 240)
        self.assertEqual((job["phase"], job["progress"]["step"], job["failures"]), ("succeeded", STEPS, 0))

        events = [entry["event"] for entry in self.muster("events", "through-it-all")]
        first, second = (event["from_step"] for event in events if event["kind"] == "resumed")
        self.assertIn(f"stopped in order at step {first}", json.dumps(events))
        # Checkpoints are 50 steps apart; the newest one may have been incomplete.
        self.assertGreaterEqual(second, 200)
        # Without a scheduler the executor still runs and stops in order.
        next(pod for pod in schedulers if pod is not leader).delete()
        self.assertIsNone(executor.process.poll())
        self.assertLess(executor.delete(), 20)
        self.assertLess(api.delete(), 20)
