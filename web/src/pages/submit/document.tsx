// A job or study document that is edited, checked and sent. Errors are shown beside their lines.
import { useEffect, useId, useRef, useState, type ReactNode } from "react";
import { newKey } from "../../api/key";
import { fromThrown, type ApiError } from "../../api/problem";
import { Icon } from "../../ui/icon";
import { Panel } from "../../ui/panel";
import { lineOf, toYaml } from "../../words/document";
import { insertField, type Field, type Place } from "../../words/schema";
import { keepDraft, readDraft } from "./draft";
import { Editor, goToLine } from "./editor";
import { Fields } from "./fields";
import { Refused } from "./refused";
import type { Template, Templates } from "./templates";

/** Pause in typing after which the document is checked. */
const CHECK_AFTER_MS = 600;

interface Props<T> {
  title: string;
  /** `Job` or `Study`. */
  noun: string;
  verb: { text: string; busy: string };
  /** Name of the document's schema in the API. */
  schema: string;
  /** Initial text; null for the draft, or the first template. */
  start: string | null;
  templates: Templates;
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
  schema,
  start,
  templates,
  send,
  onSent,
  help,
  checked,
  children,
}: Props<T>) {
  const area = useRef<HTMLTextAreaElement>(null);
  const result = useId();
  const [text, setText] = useState(() => start ?? readDraft(noun) ?? templates[0].text);
  const [caret, setCaret] = useState(0);
  // The text before a template replaced it.
  const [replaced, setReplaced] = useState<string | null>(null);
  const [busy, setBusy] = useState<"check" | "send" | null>(null);
  const [outcome, setOutcome] = useState<Outcome<T> | null>(null);
  // One key per document, so that a second click or a retry after a lost answer creates only one
  // object.
  const key = useRef({ text: "", value: "" });

  // Answers to an earlier text change nothing.
  const newest = useRef(text);
  const checking = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);

  const go = (dryRun: boolean) => {
    if (key.current.text !== text) key.current = { text, value: newKey() };
    clearTimeout(checking.current);
    newest.current = "";
    setBusy(dryRun ? "check" : "send");
    send(text, dryRun, key.current.value).then(
      (made) => {
        setBusy(null);
        if (dryRun) setOutcome({ kind: "checked", text, made });
        else {
          keepDraft(noun, null);
          onSent(made);
        }
      },
      (thrown: unknown) => {
        setBusy(null);
        setOutcome({ kind: "refused", error: fromThrown(thrown) });
      },
    );
  };
  useEffect(() => () => clearTimeout(checking.current), []);
  // Errors are shown when typing pauses. A valid text shows nothing, because nothing was asked.
  const checkLater = (next: string) => {
    clearTimeout(checking.current);
    if (next.trim() === "") return;
    checking.current = setTimeout(() => {
      const show = (found: Outcome<T> | null) => {
        if (newest.current === next) setOutcome(found);
      };
      send(next, true, newKey()).then(
        () => show(null),
        (thrown: unknown) => show({ kind: "refused", error: fromThrown(thrown) }),
      );
    }, CHECK_AFTER_MS);
  };
  const change = (next: string) => {
    newest.current = next;
    setText(next);
    setReplaced(null);
    keepDraft(noun, next);
    if (outcome?.kind === "checked") setOutcome(null);
    checkLater(next);
  };
  const use = (template: Template) => {
    clearTimeout(checking.current);
    setReplaced(templates.some((other) => other.text === text) ? null : text);
    newest.current = template.text;
    setText(template.text);
    setCaret(0);
    keepDraft(noun, null);
    setOutcome(null);
  };
  const insert = (field: Field, place: Place) => {
    const [next, at] = insertField(text, caret, place, field);
    change(next);
    setCaret(at);
    // The field has the new text only after it is drawn.
    requestAnimationFrame(() => {
      area.current?.focus();
      area.current?.setSelectionRange(at, at);
    });
  };
  const wrong = outcome?.kind === "refused" ? outcome.error.fields : [];
  const marked = new Set(wrong.flatMap((error) => lineOf(text, error.field) ?? []));
  const idle = busy === null && text.trim() !== "";
  const chosen = templates.findIndex((template) => template.text === text);
  const choice = (
    <div className="actions">
      {replaced === null ? null : (
        <button type="button" className="button button-small" onClick={() => change(replaced)}>
          Back to my text
        </button>
      )}
      <label>
        <span className="sr-only">Template</span>
        <select
          value={chosen}
          onChange={(event) => {
            const template = templates[Number(event.target.value)];
            if (template !== undefined) use(template);
          }}
        >
          <option value={-1} disabled>
            Template…
          </option>
          {templates.map(({ title: named }, place) => (
            <option key={named} value={place}>
              {named}
            </option>
          ))}
        </select>
      </label>
    </div>
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
        <Panel title={`${noun} document`} aside={choice} className="panel-flush">
          <Editor
            ref={area}
            value={text}
            onChange={change}
            onCaret={setCaret}
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
          <Fields text={text} caret={caret} root={schema} onInsert={insert} />
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
