// Asks between how many workers the scheduler may choose, and what priority the job has. The api says what is wrong with them.
import { useEffect, useId, useRef, useState, type SyntheticEvent } from "react";
import { editJob } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import type { JobView } from "../../api/types";
import { Failure } from "../../ui/states";

export function Edit({ job, onDone, onClose }: { job: JobView; onDone: () => void; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  // As it was when the dialog opened: what others change meanwhile is theirs to be asked about.
  const [read] = useState(job);
  const [fewest, setFewest] = useState(String(job.workers.min));
  const [most, setMost] = useState(String(job.workers.max));
  const [priority, setPriority] = useState(String(job.priority));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const title = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const go = (event: SyntheticEvent) => {
    event.preventDefault();
    setBusy(true);
    const change = { workers: { min: Number(fewest), max: Number(most) }, priority: Number(priority), edits: read.edits ?? 0 };
    editJob(job.id, change).then(
      () => {
        onDone();
        onClose();
      },
      (thrown: unknown) => {
        setBusy(false);
        setError(fromThrown(thrown));
      },
    );
  };
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={title} onClose={onClose}>
      <form onSubmit={go}>
        <h2 id={title}>Change {job.name}</h2>
        <p>Above a new maximum it shrinks at once. Below a new minimum it goes on as it is, and grows as soon as there is room.</p>
        <label className="extend-more">
          Fewest workers
          <input type="number" min={1} max={1024} step={1} required value={fewest} onChange={(event) => setFewest(event.target.value)} />
        </label>
        <label className="extend-more">
          Most workers
          <input type="number" min={1} max={1024} step={1} required value={most} onChange={(event) => setMost(event.target.value)} />
        </label>
        <label className="extend-more">
          Priority
          <input type="number" min={-100} max={100} step={1} required value={priority} onChange={(event) => setPriority(event.target.value)} />
        </label>
        {error === null ? null : <Failure error={error} />}
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose} disabled={busy}>
            Keep it
          </button>
          <button type="submit" className="button button-primary" disabled={busy}>
            {busy ? "Working…" : "Change"}
          </button>
        </div>
      </form>
    </dialog>
  );
}
