// Dialog for the range of workers and the priority of a job. The API validates them.
import { useState } from "react";
import { editJob } from "../../api/calls";
import type { JobView } from "../../api/types";
import { Confirm } from "../../ui/confirm";

const TEXT =
  "Above a new maximum it shrinks. Below a new minimum it continues at its size, and grows once there are free GPUs that no other job waits for. A program of your own starts again with its new size.";

export function Edit({ job, onDone, onClose }: { job: JobView; onDone: () => void; onClose: () => void }) {
  // State when the dialog opened. A change by another user meanwhile is then reported.
  const [read] = useState(job);
  const [fewest, setFewest] = useState(String(job.workers.min));
  const [most, setMost] = useState(String(job.workers.max));
  const [priority, setPriority] = useState(String(job.priority));
  const act = async () => {
    await editJob(job.id, {
      workers: { min: Number(fewest), max: Number(most) },
      priority: Number(priority),
      edits: read.edits ?? 0,
    });
    onDone();
  };
  return (
    <Confirm
      question={{ title: `Change ${job.name}`, text: TEXT, verb: "Change", danger: false, act }}
      onClose={onClose}
    >
      <label className="extend-more">
        Fewest workers
        <input
          type="number"
          min={1}
          max={1024}
          step={1}
          required
          value={fewest}
          onChange={(event) => setFewest(event.target.value)}
        />
      </label>
      <label className="extend-more">
        Most workers
        <input
          type="number"
          min={1}
          max={1024}
          step={1}
          required
          value={most}
          onChange={(event) => setMost(event.target.value)}
        />
      </label>
      <label className="extend-more">
        Priority
        <input
          type="number"
          min={-100}
          max={100}
          step={1}
          required
          value={priority}
          onChange={(event) => setPriority(event.target.value)}
        />
      </label>
    </Confirm>
  );
}
