// A job or study document that is edited, checked and sent. Errors are shown beside their lines.
import { useId, useRef, useState, type ReactNode } from "react";
import { newKey } from "../../api/key";
import { fromThrown, type ApiError } from "../../api/problem";
import { Icon } from "../../ui/icon";
import { Panel } from "../../ui/panel";
import { lineOf, toYaml } from "../../words/document";
import { Editor, goToLine } from "./editor";
import { Refused } from "./refused";

interface Props<T> {
  title: string;
  /** `Job` or `Study`. */
  noun: string;
  verb: { text: string; busy: string };
  /** Initial text of the field, and the example. */
  start: string;
  example: string;
  /** Sends the document at most once per key. A dry run changes nothing. */
  send: (text: string, dryRun: boolean, key: string) => Promise<T>;
  onSent: (made: T) => void;
  help: ReactNode;
  /** Shows the result of a dry run of the text. */
  checked: (made: T, text: string) => ReactNode;
  children?: ReactNode;
}

type Outcome<T> = { kind: "checked"; text: string; made: T } | { kind: "refused"; error: ApiError };

export function DocumentPage<T>({
  title,
  noun,
  verb,
  start,
  example,
  send,
  onSent,
  help,
  checked,
  children,
}: Props<T>) {
  const area = useRef<HTMLTextAreaElement>(null);
  const result = useId();
  const [text, setText] = useState(start);
  const [busy, setBusy] = useState<"check" | "send" | null>(null);
  const [outcome, setOutcome] = useState<Outcome<T> | null>(null);
  // One key per document, so that a second click or a retry after a lost answer creates only one
  // object.
  const key = useRef({ text: "", value: "" });

  const go = (dryRun: boolean) => {
    if (key.current.text !== text) key.current = { text, value: newKey() };
    setBusy(dryRun ? "check" : "send");
    send(text, dryRun, key.current.value).then(
      (made) => {
        setBusy(null);
        if (dryRun) setOutcome({ kind: "checked", text, made });
        else onSent(made);
      },
      (thrown: unknown) => {
        setBusy(null);
        setOutcome({ kind: "refused", error: fromThrown(thrown) });
      },
    );
  };
  const change = (next: string) => {
    setText(next);
    if (outcome?.kind === "checked") setOutcome(null);
  };
  const wrong = outcome?.kind === "refused" ? outcome.error.fields : [];
  const marked = new Set(wrong.flatMap((error) => lineOf(text, error.field) ?? []));
  const idle = busy === null && text.trim() !== "";
  const toExample =
    text === example ? null : (
      <button type="button" className="button button-small" onClick={() => change(example)}>
        Back to the example
      </button>
    );

  return (
    <div className="page">
      <div className="page-head">
        <h1>{title}</h1>
        <div className="actions">
          <button type="button" className="button" disabled={!idle} onClick={() => go(true)}>
            {busy === "check" ? "Checking…" : "Dry run"}
          </button>
          <button type="button" className="button button-primary" disabled={!idle} onClick={() => go(false)}>
            {busy === "send" ? verb.busy : verb.text}
          </button>
        </div>
      </div>
      {children}
      <div className="submit">
        <Panel title={`${noun} document`} aside={toExample} className="panel-flush">
          <Editor
            ref={area}
            value={text}
            onChange={change}
            label={`${noun} document, YAML or JSON`}
            marked={marked}
            describedBy={result}
          />
        </Panel>
        <div id={result} className="submit-result" aria-live="polite">
          {outcome === null ? help : null}
          {outcome?.kind === "checked" ? checked(outcome.made, outcome.text) : null}
          {outcome?.kind === "refused" ? (
            <Refused
              error={outcome.error}
              text={text}
              onGo={(line) => {
                if (area.current !== null) goToLine(area.current, line);
              }}
            />
          ) : null}
        </div>
      </div>
    </div>
  );
}

/** Shows the document with all defaults. Green only without objections from other checks. */
export function Valid({ children, document, good = true }: { children: ReactNode; document: unknown; good?: boolean }) {
  return (
    <Panel title="The document is valid" aside={<Icon name="check" />} className={good ? "panel-good" : ""}>
      <p>{children}</p>
      <pre className="document">{toYaml(document)}</pre>
    </Panel>
  );
}
