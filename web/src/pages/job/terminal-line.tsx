// One line of a program's output with its colours.
import { spans } from "../../words/terminal";

export function TerminalLine({ line }: { line: string }) {
  const parts = spans(line);
  // An empty line keeps its height.
  if (parts.length === 0) return <>{"\u200B"}</>;
  return (
    <>
      {parts.map((part, index) => {
        if (part.colour === null && !part.bold) return part.text;
        const colour = part.colour === null ? "" : ` ansi-${part.colour}`;
        return (
          <span key={index} className={`${part.bold ? "ansi-bold" : ""}${colour}`.trim()}>
            {part.text}
          </span>
        );
      })}
    </>
  );
}
