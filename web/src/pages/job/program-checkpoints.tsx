// Checkpoints that the job's program has declared: their metrics, and downloads.
import { Link } from "react-router";
import { checkpointArchive } from "../../api/calls";
import type { CheckpointView, JobView } from "../../api/types";
import { isTerminal } from "../../live/job";
import { FileButton } from "../../ui/file-button";
import { Icon } from "../../ui/icon";
import { usePoll } from "../../ui/poll";
import { Empty } from "../../ui/states";
import { bytes, count } from "../../words/number";
import { reasons } from "./reasons";

/** The job's stream has no checkpoints of programs. */
const RELOAD_EVERY_MS = 5000;
/** Maximum number of metrics in a row. */
const MOST_METRICS = 6;

export function ProgramCheckpoints({
  job,
  list,
  reload,
}: {
  job: JobView;
  list: CheckpointView[];
  reload: () => void;
}) {
  usePoll(isTerminal(job.phase) ? 0 : RELOAD_EVERY_MS, reload);
  const shown = list.filter((one) => one.retained).sort((a, b) => b.step - a.step);
  if (shown.length === 0) {
    return (
      <Empty title="No checkpoint is registered">
        A program registers a checkpoint by a report with its path, or by <code>checkpoint.files</code> of the document.
      </Empty>
    );
  }
  return (
    <div className="table-wrap">
      <table className="table cards">
        <caption className="sr-only">Checkpoints of the program, newest first</caption>
        <thead>
          <tr>
            <th scope="col" className="right">
              Step
            </th>
            <th scope="col">Path</th>
            <th scope="col" className="right">
              Size
            </th>
            <th scope="col" className="right">
              Files
            </th>
            <th scope="col">Kept as</th>
            <th scope="col">Metrics</th>
            <th scope="col">Download</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <Row key={one.id} job={job} one={one} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ job, one }: { job: JobView; one: CheckpointView }) {
  const metrics = Object.entries(one.metrics ?? {});
  const named = metrics.slice(0, MOST_METRICS).map(([name, value]) => `${name} ${value.toPrecision(4)}`);
  if (metrics.length > MOST_METRICS) named.push(`and ${count(metrics.length - MOST_METRICS)} more`);
  return (
    <tr>
      <th scope="row" className="right num" data-label="Step">
        {count(one.step)}
        <Link
          className="button button-small"
          to={`/submit?from=${job.id}&step=${one.step}`}
          title="Begin a new job from this checkpoint"
        >
          <Icon name="submit" /> Fork
        </Link>
      </th>
      <td className="mono" data-label="Path">
        {one.path}
      </td>
      <td className="right num" data-label="Size">
        {bytes(one.bytes)}
      </td>
      <td className="right num" data-label="Files">
        {count(one.file_count ?? 0)}
      </td>
      <td data-label="Kept as">{one.kept.map((why) => reasons[why]).join(", ")}</td>
      <td data-label="Metrics">{named.length === 0 ? <span className="muted">none</span> : named.join(", ")}</td>
      <td data-label="Download">
        <FileButton
          isSmall
          load={() => checkpointArchive(job.id, one.step)}
          name={`${job.name}-step-${one.step}.tar`}
          title="Download the checkpoint as a tar file"
        >
          tar
        </FileButton>
      </td>
    </tr>
  );
}
