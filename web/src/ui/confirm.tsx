// A question before a verb that cannot be taken back. The browser's own dialog element keeps focus inside and closes on Escape.
import { useEffect, useId, useRef, useState } from "react";
import { fromThrown, type ApiError } from "../api/problem";
import { Failure } from "./states";

export interface Question {
  title: string;
  text: string;
  verb: string;
  danger: boolean;
  act: () => Promise<void>;
}

export function Confirm({ question, onClose }: { question: Question; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const title = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);

  const go = () => {
    setBusy(true);
    question.act().then(onClose, (thrown: unknown) => {
      setBusy(false);
      setError(fromThrown(thrown));
    });
  };

  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={title} onClose={onClose}>
      <h2 id={title}>{question.title}</h2>
      <p>{question.text}</p>
      {error === null ? null : <Failure error={error} />}
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onClose} disabled={busy}>
          Keep it
        </button>
        <button type="button" className={question.danger ? "button button-danger" : "button button-primary"} onClick={go} disabled={busy}>
          {busy ? "Working…" : question.verb}
        </button>
      </div>
    </dialog>
  );
}
