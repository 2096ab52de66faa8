// The last output of the task that made a job fail.
import { Link } from "react-router";
import { logTail } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { JobView, TaskView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { terminalLines } from "../../words/terminal";
import { TerminalLine } from "./terminal-line";
import { byNewest } from "./tasks";

const TAIL_BYTES = 64 * 1024;
const LINES = 30;

export function LastOutput({ job, tasks }: { job: JobView; tasks: TaskView[] }) {
  const task = failedTask(job, tasks);
  const log = useResource(task === undefined ? null : `last-output ${task.id}`, (signal) =>
    logTail(job.id, task?.id ?? "", TAIL_BYTES, signal),
  );
  if (task === undefined || log.data === null || log.data.text === "") return null;
  const lines = terminalLines(log.data.text).slice(-LINES);
  return (
    <Panel title={`Last output of ${task.name}`} className="panel-flush">
      <pre className="last-output">
        {lines.map((line, index) => (
          <div key={index}>
            <TerminalLine line={line} />
          </div>
        ))}
      </pre>
      <p className="last-output-more">
        <Link to={`?tab=logs&task=${task.id}`}>The whole log</Link>
      </p>
    </Panel>
  );
}

/** Returns the task that the failure begins with; otherwise the first of the newest revision. */
export function failedTask(job: JobView, tasks: TaskView[]): TaskView | undefined {
  if (job.phase !== "failed") return undefined;
  const named = job.failure?.split(" ")[0];
  const sorted = [...tasks].sort(byNewest);
  return sorted.find((task) => task.name === named) ?? sorted[0];
}
