// A job document as YAML text. It writes the subset that job documents use, flow style for leaves as the examples do.

export function toYaml(value: unknown): string {
  return isMap(value) ? mapLines(value, 0).join("\n") + "\n" : `${scalar(value)}\n`;
}

function mapLines(map: Record<string, unknown>, depth: number): string[] {
  const pad = "  ".repeat(depth);
  return Object.entries(map).flatMap(([key, value]) => {
    if (value === undefined || value === null) return [];
    if (Array.isArray(value) && value.length > 1 && value.some(isMap) && inline(value).length > 72) return [`${pad}${name(key)}:`, ...value.map((item) => `${pad}  - ${inline(item)}`)];
    if (!isMap(value)) return [`${pad}${name(key)}: ${inline(value)}`];
    const flat = inline(value);
    if (depth > 0 && flat.length <= 72 && Object.values(value).every((inner) => !isMap(inner))) return [`${pad}${name(key)}: ${flat}`];
    if (Object.keys(value).length === 0) return [`${pad}${name(key)}: {}`];
    return [`${pad}${name(key)}:`, ...mapLines(value, depth + 1)];
  });
}

function inline(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (!isMap(value)) return scalar(value);
  const parts = Object.entries(value).flatMap(([key, inner]) => (inner === undefined || inner === null ? [] : [`${name(key)}: ${inline(inner)}`]));
  return parts.length === 0 ? "{}" : `{ ${parts.join(", ")} }`;
}

function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  return isPlain(value) ? value : JSON.stringify(value);
}

function name(key: string): string {
  return isPlain(key) ? key : JSON.stringify(key);
}

/** Whether YAML reads the bare word back as this very string: `true`, `null`, `1e3` and the like would become something else. */
function isPlain(text: string): boolean {
  return /^[A-Za-z_][\w./-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text);
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * The line (from 0) of a YAML or JSON text on which the field at `path` (`scale.workers.min`, `hidden[0]`) stands, or the line
 * of its nearest ancestor that is written there. A reader of indentation and names only: enough to point at a mistake.
 */
export function lineOf(text: string, path: string): number | null {
  const lines = text.split("\n");
  let found: number | null = null;
  let from = 0;
  let to = lines.length;
  for (const key of path.split(/[.[\]]+/).filter((part) => part !== "" && !/^\d+$/.test(part))) {
    const at = keyLine(lines, key, from, to);
    if (at === null) break;
    found = at;
    from = at;
    to = blockEnd(lines, at);
  }
  return found;
}

function keyLine(lines: string[], key: string, from: number, to: number): number | null {
  const pattern = new RegExp(`(^|[\\s{,"'])${key.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}["']?\\s*:`);
  for (let at = from; at < to; at += 1) {
    const line = lines[at] ?? "";
    if (pattern.test(line.replace(/(^|\s)#.*$/, ""))) return at;
  }
  return null;
}

/** The first line after `at` that is not indented deeper than it. */
function blockEnd(lines: string[], at: number): number {
  const depth = indent(lines[at] ?? "");
  for (let next = at + 1; next < lines.length; next += 1) {
    const line = lines[next] ?? "";
    if (line.trim() !== "" && !line.trim().startsWith("#") && indent(line) <= depth) return next;
  }
  return lines.length;
}

function indent(line: string): number {
  return line.length - line.trimStart().length;
}
