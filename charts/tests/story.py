"""The chart's pods in the order of their lives: migration, probes, first token, a job; the leading scheduler is killed, then its executor's
pod is deleted, and later killed, in the middle of training.
"""

import json
import time

from kubelet import until
from stage import JOB, STEPS, Stage


class Story(Stage):
    def test_a_job_outlives_its_pods(self):
        """Their folders go with them."""
        self.tell("emptyDir")

    def test_a_job_outlives_its_pods_on_a_folder_of_the_node(self):
        """The next pod knows what ran, and starts at once."""
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
        # The same processes go on: nothing was placed or restarted.
        self.assertEqual((job["revision"], len(job["tasks"])), (1, 2))
        # With a checkpoint of where it was, and within the grace.
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
        # Of the checkpoints, which are 50 steps apart, the newest or the one that was being written.
        self.assertGreaterEqual(second, 200)
        # An executor does not mind that no scheduler is left, and still goes in order.
        next(pod for pod in schedulers if pod is not leader).delete()
        self.assertIsNone(executor.process.poll())
        self.assertLess(executor.delete(), 20)
        self.assertLess(api.delete(), 20)
