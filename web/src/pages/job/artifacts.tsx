// Files that the job's program has written: a list, a preview of the chosen one, and downloads.
import { useMemo, useState } from "react";
import { artifactArchive, artifactFile, artifacts } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { ArtifactView, JobView } from "../../api/types";
import { isTerminal } from "../../live/job";
import { FileButton } from "../../ui/file-button";
import { useNow } from "../../ui/now";
import { Panel } from "../../ui/panel";
import { usePoll } from "../../ui/poll";
import { Empty, Failure, Loading } from "../../ui/states";
import { bytes, count } from "../../words/number";
import { instant } from "../../words/time";
import { ArtifactPreview } from "./artifact-preview";

/** The job's stream has no artifacts. */
const RELOAD_EVERY_MS = 5000;
/** Time after the job's end for which nodes upload files. */
const UPLOADS_AFTER_END_MS = 600_000;
/** Maximum number of rows; the filter finds the others. */
const MOST_ROWS = 500;
/** Maximum size of a file that the browser holds in memory. */
const MOST_ARCHIVE_BYTES = 2 * 1024 ** 3;

export function Artifacts({ job }: { job: JobView }) {
  const list = useResource(job.id, (signal) => artifacts(job.id, signal));
  const [filter, setFilter] = useState("");
  const [chosen, choose] = useState<string | null>(null);
  const now = useNow(60_000);
  usePoll(mayHaveMore(job, now) ? RELOAD_EVERY_MS : 0, list.reload);
  const found = useMemo(() => {
    const wanted = filter.trim().toLowerCase();
    return (list.data ?? []).filter(({ path }) => path.toLowerCase().includes(wanted));
  }, [list.data, filter]);
  if (list.error !== null) return <Failure error={list.error} retry={list.reload} />;
  if (list.data === null) return <Loading label="Loading the artifacts" rows={6} />;
  if (list.data.length === 0) return <NoArtifacts job={job} />;
  const shown = list.data.find(({ path }) => path === chosen);
  const sum = list.data.reduce((all, one) => all + one.bytes, 0);
  return (
    <Panel
      title="Artifacts"
      aside={
        <label className="check">
          Filter
          <input type="search" value={filter} onChange={(event) => setFilter(event.target.value)} />
        </label>
      }
    >
      <p className="muted">
        {count(list.data.length)} {list.data.length === 1 ? "file" : "files"}, {bytes(sum)}
        {found.length > MOST_ROWS ? `; the first ${count(MOST_ROWS)} of ${count(found.length)} are listed` : null}
      </p>
      <DownloadAll job={job} sum={sum} />
      <div className="artifacts">
        <Rows job={job} all={found.slice(0, MOST_ROWS)} chosen={chosen} onChoose={choose} />
        {shown === undefined ? null : <ArtifactPreview key={shown.sha256 + shown.path} job={job} artifact={shown} />}
      </div>
    </Panel>
  );
}

function DownloadAll({ job, sum }: { job: JobView; sum: number }) {
  const name = `${job.spec.name}-artifacts.tar`;
  if (sum > MOST_ARCHIVE_BYTES) {
    const command = `muster artifacts ${job.spec.name} --download ${name}`;
    return (
      <p className="muted">
        Too large to load all in a browser. Use <code>{command}</code>
      </p>
    );
  }
  return (
    <FileButton load={() => artifactArchive(job.id)} name={name} title="Download all artifacts as a tar file" isSmall>
      Download all
    </FileButton>
  );
}

function mayHaveMore(job: JobView, now: number): boolean {
  if (!isTerminal(job.phase)) return true;
  return job.finished_at !== null && now < Date.parse(job.finished_at) + UPLOADS_AFTER_END_MS;
}

function NoArtifacts({ job }: { job: JobView }) {
  return (
    <Panel title="Artifacts">
      <Empty title="No artifacts yet">
        <p>
          {job.spec.command == null
            ? "The built-in engine writes checkpoints only."
            : "Files that the program writes to the folder in MUSTER_OUTPUT_DIR, or logs with MLflow, are kept here."}
        </p>
      </Empty>
    </Panel>
  );
}

interface RowsProps {
  job: JobView;
  all: readonly ArtifactView[];
  chosen: string | null;
  onChoose: (path: string) => void;
}

function Rows({ job, all, chosen, onChoose }: RowsProps) {
  return (
    <div className="table-wrap">
      <table className="table cards">
        <caption className="sr-only">Artifacts by path</caption>
        <thead>
          <tr>
            <th scope="col">Path</th>
            <th scope="col" className="right">
              Size
            </th>
            <th scope="col">Stored</th>
            <th scope="col">File</th>
          </tr>
        </thead>
        <tbody>
          {all.map((one) => (
            <tr key={one.path}>
              <th scope="row" data-label="Path">
                <button
                  type="button"
                  className="artifact-name mono"
                  aria-pressed={one.path === chosen}
                  onClick={() => onChoose(one.path)}
                >
                  {one.path}
                </button>
              </th>
              <td className="right num" data-label="Size">
                {bytes(one.bytes)}
              </td>
              <td className="num" data-label="Stored">
                <time dateTime={one.stored_at}>{instant(one.stored_at)}</time>
              </td>
              <td data-label="File">
                <FileButton
                  load={() => artifactFile(job.id, one.path)}
                  name={one.path.split("/").pop() ?? one.path}
                  title={`Download ${one.path}`}
                  isSmall
                >
                  <span className="sr-only">Download {one.path}</span>
                </FileButton>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
