// Small controls above the charts of a study, and the legend of their colours.

export function Toggle({ label, on, onChange }: { label: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <button type="button" className="segment" aria-pressed={on} onClick={() => onChange(!on)}>
      {label}
    </button>
  );
}

interface ChoiceProps {
  label: string;
  /** Whether the label is visible, which is necessary where the options alone are ambiguous. */
  shown?: boolean;
  value: number;
  options: readonly string[];
  onChange: (index: number) => void;
}

/** Selects one of a few options by index. */
export function Choice({ label, shown = false, value, options, onChange }: ChoiceProps) {
  return (
    <label className="chart-choice">
      <span className={shown ? "muted" : "sr-only"}>{label}</span>
      <select value={value} onChange={(event) => onChange(Number(event.target.value))}>
        {options.map((option, index) => (
          <option key={option} value={index}>
            {option}
          </option>
        ))}
      </select>
    </label>
  );
}

export function RampKey({ text }: { text: string }) {
  return (
    <>
      {text}; from the worst fifth{" "}
      <span className="ramp" aria-hidden="true">
        {[0, 1, 2, 3, 4].map((step) => (
          <span key={step} data-step={step} />
        ))}
      </span>{" "}
      to the best
    </>
  );
}

/** Shows the colours of rungs; nothing for a study without rungs. */
export function RungKey({ deepest }: { deepest: number }) {
  if (deepest === 0) return null;
  return (
    <>
      Rung{" "}
      {Array.from({ length: Math.min(8, deepest + 1) }, (_, rung) => (
        <span key={rung} className="rung-key">
          <span style={{ background: `var(--job-${rung})` }} aria-hidden="true" />
          {rung}
        </span>
      ))}
    </>
  );
}
