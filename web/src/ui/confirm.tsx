// A question before a verb that is final, or that needs inputs, which are passed as children. The
// browser's dialog element keeps the focus inside and closes on Escape.
import { useEffect, useId, useRef, useState, type ReactNode, type SyntheticEvent } from "react";
import { fromThrown, type ApiError } from "../api/problem";
import { Failure } from "./states";

export interface Question {
  title: string;
  text: string;
  verb: string;
  danger: boolean;
  act: () => Promise<void>;
}

export function Confirm({
  question,
  onClose,
  children,
}: {
  question: Question;
  onClose: () => void;
  children?: ReactNode;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const title = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);

  const go = (event: SyntheticEvent) => {
    event.preventDefault();
    setBusy(true);
    question.act().then(onClose, (thrown: unknown) => {
      setBusy(false);
      setError(fromThrown(thrown));
    });
  };

  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={title} onClose={onClose}>
      <form onSubmit={go}>
        <h2 id={title}>{question.title}</h2>
        <p>{question.text}</p>
        {children}
        {error === null ? null : <Failure error={error} />}
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose} disabled={busy}>
            Keep it
          </button>
          <button
            type="submit"
            className={question.danger ? "button button-danger" : "button button-primary"}
            disabled={busy}
          >
            {busy ? "Working…" : question.verb}
          </button>
        </div>
      </form>
    </dialog>
  );
}
