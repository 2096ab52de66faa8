// A command line: two lines of it until "more" is chosen, a button that copies it in shell syntax,
// and one that downloads the program's code.
import { useState } from "react";
import { codeArchive } from "../../api/calls";
import type { JobView } from "../../api/types";
import { FileButton } from "../../ui/file-button";

/** Maximum length for two lines of a narrow page, in characters. */
const SHORT_CHARACTERS = 120;

/** Returns the command line in shell syntax. */
export function shellText(argv: readonly string[]): string {
  return argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

type ProgramCommand = NonNullable<JobView["spec"]["command"]>;

export function Command({ name, command }: { name: string; command: ProgramCommand }) {
  const [isOpen, setOpen] = useState(false);
  const [copied, setCopied] = useState(false);
  const text = shellText(command.argv);
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
          {command.code ? <Code name={name} sha256={command.code.archive} /> : null}
          {command.git ? <Commit url={command.git.url} commit={command.git.commit} /> : null}
        </span>
      </dd>
    </div>
  );
}

function Commit({ url, commit }: { url: string; commit: string }) {
  return (
    <span className="muted mono" title={`Commit ${commit} of ${url}`}>
      {commit.slice(0, 12)}
    </span>
  );
}

function Code({ name, sha256 }: { name: string; sha256: string }) {
  return (
    <FileButton
      load={() => codeArchive(sha256)}
      name={`${name}-code.tar.zst`}
      title={`Download the code archive ${sha256}`}
      isSmall
    >
      code
    </FileButton>
  );
}
