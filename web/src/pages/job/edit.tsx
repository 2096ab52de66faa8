// Dialog for the range of workers and the priority of a job. The API validates them.
import { useState } from "react";
import { editJob, priorityClasses } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { JobView } from "../../api/types";
import { Confirm } from "../../ui/confirm";
import { usable } from "../../words/priority";
import { PriorityFields, type StatedPriority } from "./priority-fields";

const TEXT =
  "Above a new maximum it shrinks. Below a new minimum it continues at its size, and grows once there are free GPUs that no other job waits for. A program of your own starts again with its new size.";

export function Edit({ job, onDone, onClose }: { job: JobView; onDone: () => void; onClose: () => void }) {
  // State when the dialog opened. A change by another user meanwhile is then reported.
  const [read] = useState(job);
  const [fewest, setFewest] = useState(String(job.workers.min));
  const [most, setMost] = useState(String(job.workers.max));
  const [stated, setStated] = useState<StatedPriority>({
    number: String(job.priority),
    class: job.priority_class,
  });
  const seen = useResource("priority classes", priorityClasses).data ?? [];
  const classes = usable(seen, job.tenant);
  const act = async () => {
    const isOtherClass = stated.class !== read.priority_class;
    await editJob(job.id, {
      workers: { min: Number(fewest), max: Number(most) },
      priority: Number(stated.number),
      ...(isOtherClass ? { priority_class: stated.class } : {}),
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
      <PriorityFields job={read} classes={classes} value={stated} onChange={setStated} />
    </Confirm>
  );
}
