// Fields that a document may have at a place of its text, by the schema of the API. Pure.

/** Part of a JSON schema, as OpenAPI 3.1 has it. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  default?: unknown;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: Schema | boolean;
  oneOf?: Schema[];
  allOf?: Schema[];
  anyOf?: Schema[];
}

export type Schemas = Readonly<Record<string, Schema>>;

export interface Field {
  name: string;
  description: string;
  required: boolean;
  /** Type or values in words, such as `integer` or `sgd, adam`. */
  type: string;
  /** Whether its value is an object or a list of objects. */
  isNested: boolean;
}

/** A place in a text: the names of the objects around it. */
export interface Place {
  path: string[];
  /** Values of `kind` of these objects, by their path joined with dots. */
  kinds: ReadonlyMap<string, string>;
  /** Spaces before a field at this place. */
  indent: number;
}

const KEY = /^(\s*)((?:- )*)["']?([\w./-]+)["']?\s*:(.*)$/;

/** Returns the place of an offset in YAML of block style, whose values may be in flow style. */
export function placeAt(text: string, offset: number): Place {
  const before = text.slice(0, offset).split("\n");
  const line = before.pop() ?? "";
  const rest = (text.slice(offset).split("\n")[0] ?? "").trim();
  const own = KEY.exec(line);
  const typed = line.trim() === "" && rest === "" ? line.length : line.length - line.trimStart().length;
  const parents: { name: string; depth: number }[] = [];
  let depth = typed + (own?.[2]?.length ?? (line.trimStart().startsWith("- ") ? 2 : 0));
  const blockDepth = depth;
  for (let at = before.length - 1; at >= 0 && depth > 0; at -= 1) {
    const match = KEY.exec(before[at] ?? "");
    if (match === null) continue;
    const [, spaces = "", dashes = "", name = "", value = ""] = match;
    const column = spaces.length + dashes.length;
    // A key with a value of its own is a field beside the place.
    if (column < depth && (value.trim() === "" || value.trim().startsWith("#"))) {
      parents.unshift({ name, depth: column });
      depth = column;
    }
  }
  const path = parents.map(({ name }) => name);
  const flow = flowPath(own?.[4] ?? "", own?.[3] ?? "");
  return { path: [...path, ...flow], kinds: kindsOf(text), indent: blockDepth };
}

/** Returns the names around the end of a text in flow style: `model` for `{ kind: cnn, `. */
function flowPath(value: string, key: string): string[] {
  const open: string[] = [];
  let name = key;
  for (const [token] of value.matchAll(/[{}]|["']?[\w./-]+["']?\s*:/g)) {
    if (token === "{") open.push(name);
    else if (token === "}") open.pop();
    else name = token.replace(/["':\s]/g, "");
  }
  return open;
}

/** Returns the values of `kind` by the path of their object. */
function kindsOf(text: string): Map<string, string> {
  const kinds = new Map<string, string>();
  const stack: { name: string; depth: number }[] = [];
  for (const line of text.split("\n")) {
    const match = KEY.exec(line);
    if (match === null) continue;
    const [, spaces = "", dashes = "", name = "", value = ""] = match;
    const column = spaces.length + dashes.length;
    while (stack.length > 0 && (stack[stack.length - 1]?.depth ?? 0) >= column) stack.pop();
    const path = stack.map((one) => one.name);
    if (name === "kind" && value.trim() !== "") kinds.set(path.join("."), value.trim());
    const flow = /\{[^{}]*\bkind:\s*["']?(\w+)/.exec(value);
    if (flow?.[1] !== undefined) kinds.set([...path, name].join("."), flow[1]);
    stack.push({ name, depth: column });
  }
  return kinds;
}

/** Returns the fields that the object at a place may have; none if the schema does not know it. */
export function fieldsAt(schemas: Schemas, root: string, { path, kinds }: Place): Field[] {
  let found = variants(schemas, { $ref: `#/components/schemas/${root}` }, kinds.get(""));
  path.forEach((name, depth) => {
    const kind = kinds.get(path.slice(0, depth + 1).join("."));
    found = found.flatMap((one) => {
      const inner =
        one.properties?.[name] ?? (typeof one.additionalProperties === "object" ? one.additionalProperties : {});
      return variants(schemas, inner, kind);
    });
  });
  const fields = new Map<string, Field>();
  for (const one of found) {
    for (const [name, schema] of Object.entries(one.properties ?? {})) {
      const known = fields.get(name);
      const type = typeOf(schemas, schema);
      if (known === undefined) {
        fields.set(name, {
          name,
          type,
          description: description(schemas, schema),
          required: one.required?.includes(name) ?? false,
          isNested: variants(schemas, schema).some((inner) => inner.properties !== undefined),
        });
      } else if (!known.type.split(", ").includes(type)) {
        known.type = `${known.type}, ${type}`;
      }
    }
  }
  return [...fields.values()];
}

/** Returns the objects that a schema allows; with `kind` only those of this kind. */
function variants(schemas: Schemas, schema: Schema, kind?: string): Schema[] {
  if (schema.$ref !== undefined) {
    const named = schemas[schema.$ref.split("/").pop() ?? ""];
    return named === undefined ? [] : variants(schemas, named, kind);
  }
  if (schema.items !== undefined) return variants(schemas, schema.items, kind);
  const one = [...(schema.oneOf ?? []), ...(schema.anyOf ?? [])];
  if (one.length > 0) {
    const all = one.flatMap((inner) => variants(schemas, inner, kind));
    const matching = kind === undefined ? [] : all.filter((inner) => inner.properties?.kind?.enum?.includes(kind));
    return matching.length > 0 ? matching : all;
  }
  if (schema.allOf !== undefined) {
    const parts = schema.allOf.flatMap((inner) => variants(schemas, inner, kind));
    const properties = Object.assign({}, ...parts.map((part) => part.properties ?? {})) as Record<string, Schema>;
    return [{ properties, required: parts.flatMap((part) => part.required ?? []) }];
  }
  return [schema];
}

function description(schemas: Schemas, schema: Schema): string {
  if (schema.description !== undefined) return schema.description;
  const inner = [schema, ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  const ref = inner.find((one) => one.$ref !== undefined)?.$ref;
  const named = ref === undefined ? undefined : schemas[ref.split("/").pop() ?? ""];
  return inner.find((one) => one.description !== undefined)?.description ?? named?.description ?? "";
}

function typeOf(schemas: Schemas, schema: Schema): string {
  if (schema.items !== undefined) return "list";
  const found = variants(schemas, schema).filter((one) => one.type !== "null");
  const values = found.flatMap((one) => one.enum ?? []);
  if (values.length > 0) return values.map(String).join(", ");
  const kinds = found.flatMap((one) => one.properties?.kind?.enum ?? []);
  if (kinds.length > 0) return `kind ${kinds.map(String).join(", ")}`;
  const first = found[0];
  if (first === undefined || first.properties !== undefined) return "object";
  const type = Array.isArray(first.type) ? first.type.find((one) => one !== "null") : first.type;
  return type === "string" ? "text" : (type ?? "any");
}

/** Returns the text with a field inserted on a new line at a place, and the caret after it. */
export function insertField(text: string, offset: number, { indent }: Place, field: Field): [string, number] {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  const end = text.indexOf("\n", offset) < 0 ? text.length : text.indexOf("\n", offset);
  const line = text.slice(start, end);
  const pad = " ".repeat(indent);
  const entry = field.isNested ? `${pad}${field.name}:\n${pad}  ` : `${pad}${field.name}: `;
  // An empty line is replaced; otherwise the field follows the line.
  const [from, added] = line.trim() === "" ? [start, entry] : [end, `\n${entry}`];
  return [text.slice(0, from) + added + text.slice(end), from + added.length];
}
