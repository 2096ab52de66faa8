"""Counts, and says so by Muster's own package: what a training loop looks like that knows it may be stopped."""

import json
import time

import muster

STEPS = 60

job = muster.init()
place = job.checkpoint_dir / "counter.json"
step = json.loads(place.read_text()) if place.exists() else 0
print(f"begins at step {step}, start number {job.restart_count}", flush=True)
while step < STEPS and not job.should_checkpoint():
    time.sleep(0.1)
    step += 1
    job.report(step, loss=1.0 / step, accuracy=1.0 - 1.0 / step)
place.write_text(json.dumps(step))
job.checkpointed(step)
job.finish()
print(f"ends at step {step}", flush=True)
