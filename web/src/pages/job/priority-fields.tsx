// Fields for the priority class and the priority of a job.
import type { JobView, PriorityClass } from "../../api/types";
import { classText } from "../../words/priority";

export interface StatedPriority {
  number: string;
  /** Name of the class; null for a job without one. */
  class: string | null;
}

interface Props {
  job: JobView;
  /** Classes that the job may have. */
  classes: readonly PriorityClass[];
  value: StatedPriority;
  onChange: (value: StatedPriority) => void;
}

export function PriorityFields({ job, classes, value, onChange }: Props) {
  const choose = (name: string) => {
    const chosen = classes.find((one) => one.name === name);
    if (chosen !== undefined) onChange({ number: String(chosen.default), class: name });
    // The class that the job has, or none.
    else onChange({ number: String(job.priority), class: job.priority_class });
  };
  return (
    <>
      {classes.length === 0 ? null : (
        <label className="extend-more">
          Priority class
          <select value={value.class ?? ""} onChange={(event) => choose(event.target.value)}>
            {job.priority_class === null ? <option value="">none</option> : null}
            {job.priority_class !== null && !classes.some((one) => one.name === job.priority_class) ? (
              <option value={job.priority_class}>{job.priority_class} (not available any more)</option>
            ) : null}
            {classes.map((one) => (
              <option key={one.name} value={one.name} title={one.description}>
                {classText(one)}
              </option>
            ))}
          </select>
        </label>
      )}
      <label className="extend-more">
        Priority
        <input
          type="number"
          min={-100}
          max={100}
          step={1}
          required
          value={value.number}
          onChange={(event) => onChange({ ...value, number: event.target.value })}
        />
      </label>
    </>
  );
}
