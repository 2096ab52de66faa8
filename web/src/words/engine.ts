// Short description of a job's model and data set. An unknown kind is shown by its name.

/** Returns `mlp 256-128`, `resnet 18`, `gpt 12 × 768` or `9 layers`. */
export function modelText(model: unknown): string {
  const fields = asFields(model);
  const kind = text(fields.kind) ?? "?";
  switch (kind) {
    case "mlp":
      return words(kind, chain(fields.hidden));
    case "cnn":
      return words(kind, chain([...list(fields.channels), ...list(fields.dense)]));
    case "lstm":
    case "gru":
      return words(kind, chain(fields.hidden));
    case "vgg":
    case "resnet":
      return words(kind, text(fields.depth));
    case "densenet":
      return words(kind, text(fields.variant));
    case "autoencoder":
      return words(kind, text(fields.code));
    case "gpt":
      return words(kind, `${text(fields.blocks) ?? "?"} × ${text(fields.width) ?? "?"}`);
    case "layers": {
      const count = list(fields.layers).length;
      return `${count} ${count === 1 ? "layer" : "layers"}`;
    }
    default:
      return kind;
  }
}

/** Returns the name of a known data set, or the path of the user's files with their kind. */
export function dataText(dataset: unknown): string {
  const fields = asFields(dataset);
  const path = text(fields.path);
  if (path !== null) return `${path} (${text(fields.kind) ?? "?"})`;
  return text(fields.name) ?? "?";
}

function words(kind: string, more: string | null): string {
  return more === null || more === "" ? kind : `${kind} ${more}`;
}

function chain(value: unknown): string {
  return list(value).map(String).join("-");
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string | null {
  return typeof value === "string" || typeof value === "number" ? String(value) : null;
}

function asFields(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
