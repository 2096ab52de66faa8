// A template of the tenant, filled by a form of its parameters. The filled document goes to the
// editor.
import { useState, type SyntheticEvent } from "react";
import { fillTemplate, templates } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import { useResource } from "../../api/resource";
import type { TemplateParameter, TemplateView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Failure } from "../../ui/states";
import { toYaml } from "../../words/document";
import { ownFields } from "./fork";

/** What the user has chosen; the values are texts of the form. */
export interface Form {
  name: string;
  texts: Readonly<Record<string, string>>;
}

export const NO_FORM: Form = { name: "", texts: {} };

interface Props {
  form: Form;
  onForm: (form: Form) => void;
  /** Receives the filled document as YAML. */
  onFilled: (text: string) => void;
}

/** Shows nothing if the tenant has no templates. */
export function FromTemplate({ form, onForm, onFilled }: Props) {
  const list = useResource("templates", templates);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  if (list.data === null || list.data.length === 0) return null;
  const chosen = list.data.find((template) => template.name === form.name);
  const fill = (event: SyntheticEvent) => {
    event.preventDefault();
    if (chosen === undefined) return;
    setBusy(true);
    fillTemplate(chosen.name, valuesOf(chosen, form.texts)).then(
      (job) => {
        setBusy(false);
        setError(null);
        onFilled(toYaml(ownFields(job.spec)));
      },
      (thrown: unknown) => {
        setBusy(false);
        setError(fromThrown(thrown));
      },
    );
  };
  return (
    <Panel title="From a template">
      <form className="secret-form" onSubmit={fill} autoComplete="off">
        <label>
          Template of the tenant
          <select value={form.name} onChange={(event) => onForm({ name: event.target.value, texts: {} })}>
            <option value="" disabled>
              Choose…
            </option>
            {list.data.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        {chosen?.document.parameters?.map((parameter) => (
          <Parameter
            key={parameter.name}
            parameter={parameter}
            text={form.texts[parameter.name]}
            onText={(text) => onForm({ ...form, texts: { ...form.texts, [parameter.name]: text } })}
          />
        ))}
        {chosen === undefined ? null : (
          <button type="submit" className="button" disabled={busy}>
            {busy ? "Filling…" : "Fill the document"}
          </button>
        )}
      </form>
      {chosen?.document.description === undefined ? null : <p className="muted">{chosen.document.description}</p>}
      {error === null ? null : <Failure error={error} />}
    </Panel>
  );
}

interface ParameterProps {
  parameter: TemplateParameter;
  text: string | undefined;
  onText: (text: string) => void;
}

function Parameter({ parameter, text, onText }: ParameterProps) {
  const { name, type, default: preset, choices = [], description } = parameter;
  const options = type === "bool" ? [true, false] : choices;
  const shown = text ?? textOf(preset);
  return (
    <label title={description}>
      {name}
      {options.length > 0 ? (
        <select value={shown} required onChange={(event) => onText(event.target.value)}>
          <option value="" disabled>
            Choose…
          </option>
          {options.map((choice) => (
            <option key={textOf(choice)}>{textOf(choice)}</option>
          ))}
        </select>
      ) : (
        <input
          type="text"
          value={shown}
          required={type !== "string" && preset === undefined}
          inputMode={type === "string" ? "text" : "decimal"}
          placeholder={type}
          spellCheck={false}
          onChange={(event) => onText(event.target.value)}
        />
      )}
    </label>
  );
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value);
}

/** Returns the values of changed parameters by their type. The API refuses a text as a number. */
export function valuesOf(template: TemplateView, texts: Form["texts"]): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const { name, type, default: preset } of template.document.parameters ?? []) {
    const text = texts[name];
    if (text === undefined || (text === "" && preset !== undefined && type !== "string")) {
      if (preset === undefined && type === "string") values[name] = "";
    } else values[name] = type === "string" ? text : parsed(text);
  }
  return values;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
