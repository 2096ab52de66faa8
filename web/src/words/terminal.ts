// Output of programs that was written for a terminal: overwritten lines and colours.

/** A part of a line with one style. */
export interface Span {
  text: string;
  /** Number of the colour (0 to 7) as in ECMA-48; `null` for the colour of the page. */
  colour: number | null;
  bold: boolean;
}

/** Escape sequences: those that end with a letter, texts such as titles, others of one letter. */
// eslint-disable-next-line no-control-regex
const SEQUENCE = /\u001b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_]?)/g;

/** Returns the lines as a terminal shows them: text after a carriage return replaces the line. */
export function terminalLines(text: string): string[] {
  const lines = text.replace(/\r?\n$/, "").split(/\r?\n/);
  return lines.map((line) => {
    const kept = line.endsWith("\r") ? line.slice(0, -1) : line;
    return kept.slice(kept.lastIndexOf("\r") + 1);
  });
}

/** Returns the line without escape sequences. */
export function plain(line: string): string {
  return line.replace(SEQUENCE, "");
}

/** Returns the parts of the line with their colours. Other escape sequences are left out. */
export function spans(line: string): Span[] {
  const found: Span[] = [];
  let style: Omit<Span, "text"> = { colour: null, bold: false };
  let from = 0;
  for (const match of line.matchAll(SEQUENCE)) {
    push(found, line.slice(from, match.index), style);
    from = match.index + match[0].length;
    if (match[2] === "m") style = styled(style, match[1] ?? "");
  }
  push(found, line.slice(from), style);
  return found;
}

function push(found: Span[], text: string, style: Omit<Span, "text">) {
  if (text !== "") found.push({ text, ...style });
}

/** Applies the parameters of "select graphic rendition". Colours by number or RGB are left out. */
function styled(style: Omit<Span, "text">, parameters: string): Omit<Span, "text"> {
  let { colour, bold } = style;
  const codes = parameters.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 0) [colour, bold] = [null, false];
    else if (code === 1) bold = true;
    else if (code === 22) bold = false;
    else if (code === 39) colour = null;
    else if (code >= 30 && code <= 37) colour = code - 30;
    else if (code >= 90 && code <= 97) colour = code - 90;
    else if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : 4;
  }
  return { colour, bold };
}
