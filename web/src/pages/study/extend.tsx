// Asks how many more trials a study shall have. The api says what is wrong with the number.
import { useEffect, useId, useRef, useState, type SyntheticEvent } from "react";
import { newKey } from "../../api/key";
import { extendStudy } from "../../api/studies";
import { fromThrown, type ApiError } from "../../api/problem";
import type { StudyView } from "../../api/types";
import { Failure } from "../../ui/states";
import { count } from "../../words/number";

export function Extend({ study, onDone, onClose }: { study: StudyView; onDone: () => void; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [more, setMore] = useState(String(Math.max(1, Math.ceil(study.trials.limit / 2))));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const title = useId();
  // One key for as long as the dialog asks for the same number: a retry after a lost answer extends once.
  const key = useRef({ more: "", value: "" });
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const go = (event: SyntheticEvent) => {
    event.preventDefault();
    setBusy(true);
    if (key.current.more !== more) key.current = { more, value: newKey() };
    extendStudy(study.id, Number(more), key.current.value).then(
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
        <h2 id={title}>Extend {study.name}</h2>
        <p>It may create {count(study.trials.limit)} trials now. A finished study goes on.</p>
        <label className="extend-more">
          More trials
          <input type="number" min={1} max={100_000} step={1} required value={more} onChange={(event) => setMore(event.target.value)} />
        </label>
        {error === null ? null : <Failure error={error} />}
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose} disabled={busy}>
            Keep it
          </button>
          <button type="submit" className="button button-primary" disabled={busy}>
            {busy ? "Working…" : "Extend"}
          </button>
        </div>
      </form>
    </dialog>
  );
}
