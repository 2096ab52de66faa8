// Errors of requests: `application/problem+json` of the API, or failures of the network.

export interface FieldError {
  field: string;
  value: string;
  expected: string;
}

export class ApiError extends Error {
  override readonly name = "ApiError";
  constructor(
    /** HTTP status; 0 without an answer. */
    readonly status: number,
    readonly title: string,
    readonly detail: string | null,
    readonly fields: FieldError[] = [],
  ) {
    super(detail ?? title);
  }
}

/**
 * Parses a problem document, or derives one from the status if the body is something else, such as
 * a proxy's page.
 */
export function fromBody(status: number, body: unknown): ApiError {
  if (!isRecord(body)) return new ApiError(status, titleOf(status), null);
  const title = typeof body.title === "string" ? body.title : titleOf(status);
  const detail = typeof body.detail === "string" && body.detail !== "" ? body.detail : null;
  const fields = Array.isArray(body.errors) ? body.errors.filter(isRecord).map(fieldOf) : [];
  return new ApiError(status, title, detail, fields);
}

export function fromThrown(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  const detail = thrown instanceof Error ? thrown.message : null;
  return new ApiError(0, "The server cannot be reached", detail);
}

/**
 * Whether the id is not found, for example after a deletion. A retry cannot succeed, because ids
 * are never reused.
 */
export function isGone(error: ApiError | null): boolean {
  return error !== null && (error.status === 404 || error.status === 400);
}

function fieldOf(error: Record<string, unknown>): FieldError {
  return { field: text(error.field), value: text(error.value), expected: text(error.expected) };
}

function text(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function titleOf(status: number): string {
  if (status === 401) return "Not signed in";
  if (status === 403) return "Not allowed";
  if (status === 404) return "Not found";
  if (status === 409) return "Not possible in this state";
  if (status === 429) return "Too many requests";
  return status >= 500 ? "The server failed" : "The request was refused";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
