// A text field with line numbers that can mark lines.
import { useRef, type Ref } from "react";

interface Props {
  value: string;
  onChange: (value: string) => void;
  /** Called with the offset of the caret. */
  onCaret: (offset: number) => void;
  /** Label for screen readers. */
  label: string;
  /** Lines with errors, from 0. */
  marked: ReadonlySet<number>;
  describedBy: string;
  ref: Ref<HTMLTextAreaElement>;
}

export function Editor({ value, onChange, onCaret, label, marked, describedBy, ref }: Props) {
  const gutter = useRef<HTMLDivElement>(null);
  const lines = value.split("\n");
  return (
    <div className="editor">
      <div className="editor-gutter" ref={gutter} aria-hidden="true">
        {lines.map((_, line) => (
          <div key={line} className={marked.has(line) ? "editor-line marked" : "editor-line"}>
            {line + 1}
          </div>
        ))}
      </div>
      <textarea
        ref={ref}
        aria-label={label}
        aria-describedby={describedBy}
        aria-invalid={marked.size > 0}
        value={value}
        spellCheck={false}
        autoCapitalize="off"
        autoComplete="off"
        wrap="off"
        onChange={(event) => onChange(event.target.value)}
        onSelect={(event) => onCaret(event.currentTarget.selectionStart)}
        onScroll={(event) => {
          if (gutter.current !== null) gutter.current.scrollTop = event.currentTarget.scrollTop;
        }}
      />
    </div>
  );
}

/** Places the caret on a line and scrolls it into view. */
export function goToLine(area: HTMLTextAreaElement, line: number): void {
  const start = area.value.split("\n").slice(0, line).join("\n").length + (line > 0 ? 1 : 0);
  const end = area.value.indexOf("\n", start);
  area.focus();
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
  const height = parseFloat(getComputedStyle(area).lineHeight);
  area.scrollTop = Math.max(0, line * height - area.clientHeight / 2);
}
