// Writes a job document as YAML. It uses the subset of job documents, with flow style for leaves
// like the examples.

export function toYaml(value: unknown): string {
  return isMap(value) ? mapLines(value, 0).join("\n") + "\n" : `${scalar(value)}\n`;
}

function mapLines(map: Record<string, unknown>, depth: number): string[] {
  const pad = "  ".repeat(depth);
  return Object.entries(map).flatMap(([key, value]) => {
    if (value === undefined || value === null) return [];
    if (Array.isArray(value) && value.length > 1 && value.some(isMap) && inline(value).length > 72)
      return [`${pad}${name(key)}:`, ...value.map((item) => `${pad}  - ${inline(item)}`)];
    if (!isMap(value)) return [`${pad}${name(key)}: ${inline(value)}`];
    const flat = inline(value);
    if (depth > 0 && flat.length <= 72 && Object.values(value).every((inner) => !isMap(inner)))
      return [`${pad}${name(key)}: ${flat}`];
    if (Object.keys(value).length === 0) return [`${pad}${name(key)}: {}`];
    return [`${pad}${name(key)}:`, ...mapLines(value, depth + 1)];
  });
}

function inline(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (!isMap(value)) return scalar(value);
  const parts = Object.entries(value).flatMap(([key, inner]) =>
    inner === undefined || inner === null ? [] : [`${name(key)}: ${inline(inner)}`],
  );
  return parts.length === 0 ? "{}" : `{ ${parts.join(", ")} }`;
}

function scalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  return isPlain(value) ? value : JSON.stringify(value);
}

function name(key: string): string {
  return isPlain(key) ? key : JSON.stringify(key);
}

/**
 * Whether YAML parses the bare word as this string: `true`, `null`, `1e3` and similar words would
 * become other values.
 */
function isPlain(text: string): boolean {
  return /^[A-Za-z_][\w./-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text);
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Returns the line (from 0) of a YAML or JSON text that contains the field at `path`
 * (`scale.workers.min`, `hidden[0]`), or its nearest ancestor. It reads only indentation and names,
 * which suffices to locate an error.
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

/** Returns the first line after `at` that is not indented deeper. */
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
