// The bar above the list: phases, name, label.
import { useEffect, useRef, useState } from "react";
import type { JobPhase } from "../../api/types";
import { Icon } from "../../ui/icon";
import { PHASES } from "../../ui/phase";
import { isFiltered, NO_FILTERS, type Filters } from "./query";

type Wanted = Omit<Filters, "page">;

const TYPING_MS = 250;

export function FilterBar({ filters, onChange }: { filters: Filters; onChange: (filters: Wanted) => void }) {
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const slash = (event: KeyboardEvent) => {
      const typing =
        event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]") !== null;
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      search.current?.focus();
    };
    window.addEventListener("keydown", slash);
    return () => window.removeEventListener("keydown", slash);
  }, []);
  const toggle = (phase: JobPhase) => {
    const on = filters.phases.includes(phase);
    onChange({
      ...filters,
      phases: on ? filters.phases.filter((other) => other !== phase) : [...filters.phases, phase],
    });
  };
  return (
    <div className="filters" role="search" aria-label="Filter jobs">
      <div className="segments" role="group" aria-label="Phase">
        {PHASES.map((phase) => (
          <button
            key={phase}
            type="button"
            className="segment"
            data-phase={phase}
            aria-pressed={filters.phases.includes(phase)}
            onClick={() => toggle(phase)}
          >
            <span className="phase-dot" aria-hidden="true" />
            {phase}
          </button>
        ))}
      </div>
      <div className="filter-fields">
        <label className="field-search">
          <span className="sr-only">Name</span>
          <Icon name="search" />
          <Typed
            ref={search}
            placeholder="Name"
            title="Jobs of exactly this name; press / to come here"
            value={filters.name}
            onChange={(name) => onChange({ ...filters, name })}
          />
        </label>
        <label>
          <span className="sr-only">Label</span>
          <Typed
            placeholder="label=value"
            title="Jobs with this label"
            value={filters.label}
            onChange={(label) => onChange({ ...filters, label })}
          />
        </label>
        <label className="check" title="Only jobs that you have submitted">
          <input
            type="checkbox"
            checked={filters.mine}
            onChange={(event) => onChange({ ...filters, mine: event.target.checked })}
          />{" "}
          Mine
        </label>
        <label className="check" title="Jobs that are trials of studies">
          <input
            type="checkbox"
            checked={filters.trials}
            onChange={(event) => onChange({ ...filters, trials: event.target.checked })}
          />{" "}
          Trials
        </label>
        {isFiltered(filters) ? (
          <button type="button" className="button" onClick={() => onChange(NO_FILTERS)}>
            Clear
          </button>
        ) : null}
      </div>
    </div>
  );
}

interface TypedProps {
  value: string;
  placeholder: string;
  title: string;
  onChange: (value: string) => void;
  ref?: React.Ref<HTMLInputElement>;
}

/** A text field that reports its value when typing pauses, and follows outside changes of it. */
function Typed({ value, placeholder, title, onChange, ref }: TypedProps) {
  const [text, setText] = useState(value);
  const [shown, setShown] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  if (value !== shown) {
    setShown(value);
    setText(value);
  }
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <input
      ref={ref}
      type="search"
      value={text}
      placeholder={placeholder}
      title={title}
      spellCheck={false}
      autoComplete="off"
      onChange={(event) => {
        const next = event.target.value;
        setText(next);
        clearTimeout(timer.current);
        timer.current = setTimeout(() => onChange(next.trim()), TYPING_MS);
      }}
    />
  );
}
