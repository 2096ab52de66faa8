// A command line: two lines of it until "more" is chosen, and a button that copies it in shell
// syntax.
import { useState } from "react";

/** Maximum length for two lines of a narrow page, in characters. */
const SHORT_CHARACTERS = 120;

/** Returns the command line in shell syntax. */
export function shellText(argv: readonly string[]): string {
  return argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

export function Command({ argv }: { argv: readonly string[] }) {
  const [isOpen, setOpen] = useState(false);
  const [copied, setCopied] = useState(false);
  const text = shellText(argv);
  const isLong = text.length > SHORT_CHARACTERS || text.includes("\n");
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  };
  return (
    <div className="fact fact-command">
      <dt>Command</dt>
      <dd>
        <code className="command-text" data-open={isOpen}>
          {text}
        </code>
        <span className="command-buttons">
          {isLong ? (
            <button
              type="button"
              className="button button-small"
              aria-expanded={isOpen}
              onClick={() => setOpen(!isOpen)}
            >
              {isOpen ? "less" : "more"}
            </button>
          ) : null}
          <button
            type="button"
            className="button button-small"
            aria-label="Copy the command"
            onClick={() => void copy().catch(() => setCopied(false))}
          >
            {copied ? "copied" : "copy"}
          </button>
        </span>
      </dd>
    </div>
  );
}
