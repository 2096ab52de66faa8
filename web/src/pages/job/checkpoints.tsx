// Checkpoints and final model of the job, for download.
import { useState } from "react";
import { Link } from "react-router";
import { checkpointFile, finalModel } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import type { Resource } from "../../api/resource";
import type { CheckpointView, JobView } from "../../api/types";
import { Icon } from "../../ui/icon";
import { save } from "../../ui/save";
import { Empty, Failure, Loading } from "../../ui/states";
import { bytes, count, loss, percent } from "../../words/number";
import { ProgramCheckpoints } from "./program-checkpoints";
import { reasons } from "./reasons";

export function Checkpoints({ job, resource }: { job: JobView; resource: Resource<CheckpointView[]> }) {
  const [pruned, setPruned] = useState(false);
  const [busy, setBusy] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const download = (name: string, load: () => Promise<Blob>) => {
    setBusy(name);
    setError(null);
    load()
      .then(
        (blob) => save(blob, name),
        (thrown: unknown) => setError(fromThrown(thrown)),
      )
      .finally(() => setBusy(null));
  };
  if (resource.error !== null) return <Failure error={resource.error} retry={resource.reload} />;
  if (resource.data === null) return <Loading label="Loading checkpoints" />;
  if (job.spec.command != null) return <ProgramCheckpoints job={job} list={resource.data} reload={resource.reload} />;
  const newestFirst = [...resource.data].sort((a, b) => b.step - a.step);
  const shown = newestFirst.filter((one) => one.retained || pruned);
  const gone = newestFirst.filter((one) => !one.retained).length;
  return (
    <>
      {error === null ? null : <Failure error={error} />}
      {job.model_path === null ? null : (
        <div className="final">
          <div>
            <p className="final-title">The trained model</p>
            <p className="muted mono">{job.model_path}</p>
          </div>
          <Download
            name={`${job.name}.safetensors`}
            label="model.safetensors"
            busy={busy}
            onGo={(name) => download(name, () => finalModel(job.id))}
          />
        </div>
      )}
      {gone > 0 ? (
        <label className="check">
          <input type="checkbox" checked={pruned} onChange={(event) => setPruned(event.target.checked)} /> Show{" "}
          {count(gone)} that were pruned
        </label>
      ) : null}
      {newestFirst.length === 0 ? (
        <Empty title="No checkpoint yet">
          The job's checkpoint policy says when it writes one, and it always does when it is asked to stop.
        </Empty>
      ) : (
        <div className="table-wrap">
          <table className="table cards">
            <caption className="sr-only">Checkpoints, newest first</caption>
            <thead>
              <tr>
                <th scope="col" className="right">
                  Step
                </th>
                <th scope="col" className="right">
                  Epoch
                </th>
                <th scope="col" className="right">
                  Revision
                </th>
                <th scope="col" className="right">
                  Size
                </th>
                <th scope="col" className="right">
                  Accuracy
                </th>
                <th scope="col" className="right">
                  Loss
                </th>
                <th scope="col">Kept as</th>
                <th scope="col">Manifest SHA-256</th>
                <th scope="col">Files</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((one) => (
                <tr key={`${one.step} ${one.revision}`}>
                  <th scope="row" className="right num" data-label="Step">
                    {count(one.step)}
                    {one.retained ? (
                      <Link
                        className="button button-small"
                        to={`/submit?from=${job.id}&step=${one.step}`}
                        title="Begin a new job from this checkpoint"
                      >
                        <Icon name="submit" /> Fork
                      </Link>
                    ) : null}
                  </th>
                  <td className="right num" data-label="Epoch">
                    {one.epoch.toFixed(2)}
                  </td>
                  <td className="right num" data-label="Revision">
                    {one.revision}
                  </td>
                  <td className="right num" data-label="Size">
                    {bytes(one.bytes)}
                  </td>
                  <td className="right num" data-label="Accuracy">
                    {percent(one.accuracy, 2)}
                  </td>
                  <td className="right num" data-label="Loss">
                    {loss(one.loss)}
                  </td>
                  <td data-label="Kept as">
                    {one.retained ? (
                      one.kept.map((why) => reasons[why]).join(", ")
                    ) : (
                      <span className="muted">pruned</span>
                    )}
                  </td>
                  <td className="mono" data-label="Manifest SHA-256" title={one.manifest_sha256}>
                    {one.manifest_sha256.slice(0, 16)}…
                  </td>
                  <td className="files" data-label="Files">
                    {one.files !== undefined && one.files.length > 0 ? (
                      one.files.map((file) => (
                        <Download
                          key={file}
                          name={`${job.name}-step-${one.step}-${file}`}
                          label={file}
                          busy={busy}
                          onGo={(name) => download(name, () => checkpointFile(job.id, one.step, file))}
                        />
                      ))
                    ) : (
                      <span className="muted">pruned</span>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function Download({
  name,
  label,
  busy,
  onGo,
}: {
  name: string;
  label: string;
  busy: string | null;
  onGo: (name: string) => void;
}) {
  return (
    <button
      type="button"
      className="button button-small"
      disabled={busy !== null}
      onClick={() => onGo(name)}
      aria-label={`Download ${name}`}
    >
      <Icon name="download" /> {busy === name ? "Loading…" : label}
    </button>
  );
}
