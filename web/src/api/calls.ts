// All API calls of the page, by purpose.
import { client, take, takeAnswer } from "./client";
import type {
  Accuracy,
  ArtifactView,
  CheckpointView,
  Explanation,
  JobChange,
  JobPhase,
  JobView,
  Me,
  MetricSeries,
  MetricView,
  NodeView,
  PlanView,
  PriorityClass,
  Progress,
  ScheduleView,
  SecretView,
  StoredEvent,
  TaskView,
  TemplateView,
} from "./types";

export interface Page<T> {
  items: T[];
  continue: string | null;
}

export interface JobQuery {
  phase: readonly JobPhase[];
  label: string;
  name: string;
  /** Only jobs of this user. */
  user?: string | undefined;
  /** Whether trials of studies are included; by default they are. */
  trials?: boolean | undefined;
  limit: number;
  continue: string | null;
}

/** Maximum number of points of a curve: about one per pixel of the widest chart. */
const CURVE_POINTS = 1500;
/** The same for the charts of metrics, which share a row. */
const METRIC_POINTS = 600;

export function me(as: string, signal?: AbortSignal): Promise<Me> {
  return take(client.GET("/api/v1/me", { headers: { authorization: `Bearer ${as}` }, ...cut(signal) }));
}

/** Returns the names of all tenants; for administrators. */
export async function tenants(signal?: AbortSignal): Promise<string[]> {
  const names: string[] = [];
  for (let after: string | undefined; ;) {
    const query = after === undefined ? { limit: 500 } : { limit: 500, continue: after };
    const page = await take(client.GET("/api/v1/tenants", { params: { query }, ...cut(signal) }));
    names.push(...page.items.map((tenant) => tenant.name));
    if (page.continue === null) return names;
    after = page.continue;
  }
}

export function jobs(query: JobQuery, signal?: AbortSignal): Promise<Page<JobView>> {
  const given = {
    limit: query.limit,
    ...(query.phase.length > 0 ? { phase: [...query.phase] } : {}),
    ...(query.label === "" ? {} : { label: [query.label] }),
    ...(query.name === "" ? {} : { name: query.name }),
    ...(query.user === undefined ? {} : { user: query.user }),
    ...(query.trials === undefined ? {} : { trials: query.trials }),
    ...(query.continue === null ? {} : { continue: query.continue }),
  };
  return take(client.GET("/api/v1/jobs", { params: { query: given }, ...cut(signal) }));
}

export function job(id: string, signal?: AbortSignal): Promise<JobView> {
  return take(client.GET("/api/v1/jobs/{id}", { params: { path: { id } }, ...cut(signal) }));
}

export function explain(id: string, signal?: AbortSignal): Promise<Explanation> {
  return take(client.GET("/api/v1/jobs/{id}/explain", { params: { path: { id } }, ...cut(signal) }));
}

export function accuracy(signal?: AbortSignal): Promise<Accuracy> {
  return take(client.GET("/api/v1/forecasts/accuracy", { ...cut(signal) }));
}

export type Verb = "suspend" | "continue" | "pause" | "resume" | "cancel" | "delete";

export async function act(id: string, verb: Verb): Promise<void> {
  const params = { path: { id } };
  if (verb === "suspend") await take(client.POST("/api/v1/jobs/{id}/suspend", { params }));
  else if (verb === "continue") await take(client.POST("/api/v1/jobs/{id}/continue", { params }));
  else if (verb === "pause") await take(client.POST("/api/v1/jobs/{id}/pause", { params }));
  else if (verb === "resume") await take(client.POST("/api/v1/jobs/{id}/resume", { params }));
  else if (verb === "cancel") await take(client.POST("/api/v1/jobs/{id}/cancel", { params }));
  else await take(client.DELETE("/api/v1/jobs/{id}", { params }));
}

/**
 * Changes the given fields only. With `edits` the change is refused if the job was edited since.
 */
export function editJob(id: string, change: JobChange): Promise<JobView> {
  return take(client.PATCH("/api/v1/jobs/{id}", { params: { path: { id } }, body: change }));
}

/** Returns the priority classes that the caller sees; there are at most 64. */
export async function priorityClasses(signal?: AbortSignal): Promise<PriorityClass[]> {
  const params = { query: { limit: 500 } };
  return (await take(client.GET("/api/v1/priority-classes", { params, ...cut(signal) }))).items;
}

export function submit(document: string, dryRun: boolean, idempotencyKey: string): Promise<JobView> {
  return take(
    client.POST("/api/v1/jobs", {
      params: { query: dryRun ? { dry_run: true } : {}, header: dryRun ? {} : { "Idempotency-Key": idempotencyKey } },
      ...typed(document),
    }),
  );
}

/** Returns the forecast for a document that is not submitted. The scheduler needs some seconds. */
export function plan(document: string, signal?: AbortSignal): Promise<PlanView> {
  return take(client.POST("/api/v1/plan", { ...typed(document), ...cut(signal) }));
}

/**
 * Sends the document as typed; the API parses it and reports errors. JSON is also YAML, but its own
 * content type gives better messages.
 */
export function typed(document: string) {
  return {
    headers: { "content-type": document.trimStart().startsWith("{") ? "application/json" : "application/yaml" },
    body: document as never,
    bodySerializer: () => document,
  };
}

export async function tasks(id: string, signal?: AbortSignal): Promise<TaskView[]> {
  const page = await take(
    client.GET("/api/v1/jobs/{id}/tasks", { params: { path: { id }, query: { all: true } }, ...cut(signal) }),
  );
  return page.items;
}

export function progress(id: string, signal?: AbortSignal): Promise<Progress> {
  const params = { path: { id }, query: { max_points: CURVE_POINTS } };
  return take(client.GET("/api/v1/jobs/{id}/progress", { params, ...cut(signal) }));
}

export async function schedules(signal?: AbortSignal): Promise<ScheduleView[]> {
  return (await take(client.GET("/api/v1/schedules", { ...cut(signal) }))).items;
}

/** Pauses a schedule, or resumes it. */
export async function pauseSchedule(name: string, paused: boolean): Promise<void> {
  const params = { path: { name } };
  if (paused) await take(client.POST("/api/v1/schedules/{name}/pause", { params }));
  else await take(client.POST("/api/v1/schedules/{name}/resume", { params }));
}

/** Submits a job of a schedule now. */
export async function runSchedule(name: string): Promise<void> {
  await take(client.POST("/api/v1/schedules/{name}/run", { params: { path: { name } } }));
}

export async function deleteSchedule(name: string): Promise<void> {
  await take(client.DELETE("/api/v1/schedules/{name}", { params: { path: { name } } }));
}

export async function templates(signal?: AbortSignal): Promise<TemplateView[]> {
  return (await take(client.GET("/api/v1/templates", { ...cut(signal) }))).items;
}

/** Returns the job that a template with these values would be. Nothing is submitted. */
export function fillTemplate(name: string, parameters: Record<string, unknown>): Promise<JobView> {
  const params = { path: { name }, query: { dry_run: true } };
  // The schema cannot say that the values have any type.
  const body = { parameters: parameters as Record<string, never> };
  return take(client.POST("/api/v1/templates/{name}/submit", { params, body }));
}

export async function secrets(signal?: AbortSignal): Promise<SecretView[]> {
  return (await take(client.GET("/api/v1/secrets", { ...cut(signal) }))).items;
}

/** Stores a new version of a secret. */
export async function setSecret(name: string, value: string): Promise<void> {
  await take(client.PUT("/api/v1/secrets/{name}", { params: { path: { name } }, body: { value } }));
}

/** With `force` it is deleted although open jobs or studies name it. */
export async function deleteSecret(name: string, force: boolean): Promise<void> {
  await take(client.DELETE("/api/v1/secrets/{name}", { params: { path: { name }, query: { force } } }));
}

export async function metrics(id: string, signal?: AbortSignal): Promise<MetricView[]> {
  const page = await take(client.GET("/api/v1/jobs/{id}/metrics", { params: { path: { id } }, ...cut(signal) }));
  return page.items;
}

/** Returns the series of at most ten metrics; names without values are left out. */
export async function metricPoints(id: string, name: string[], signal?: AbortSignal): Promise<MetricSeries[]> {
  if (name.length === 0) return [];
  const params = { path: { id }, query: { name, max_points: METRIC_POINTS } };
  const page = await take(client.GET("/api/v1/jobs/{id}/metrics/points", { params, ...cut(signal) }));
  return page.items;
}

/** Returns the points of all metrics as CSV. */
export function metricsFile(id: string): Promise<Blob> {
  return take(client.GET("/api/v1/jobs/{id}/metrics/export", { params: { path: { id } }, parseAs: "blob" }));
}

export async function events(id: string, signal?: AbortSignal): Promise<StoredEvent[]> {
  return everything((after) =>
    take(
      client.GET("/api/v1/jobs/{id}/events", {
        params: { path: { id }, query: { limit: 500, ...after } },
        ...cut(signal),
      }),
    ),
  );
}

export async function checkpoints(id: string, signal?: AbortSignal): Promise<CheckpointView[]> {
  return everything((after) =>
    take(client.GET("/api/v1/jobs/{id}/checkpoints", { params: { path: { id }, query: after }, ...cut(signal) })),
  );
}

export async function artifacts(id: string, signal?: AbortSignal): Promise<ArtifactView[]> {
  return everything((after) =>
    take(client.GET("/api/v1/jobs/{id}/artifacts", { params: { path: { id }, query: after }, ...cut(signal) })),
  );
}

export function artifactFile(id: string, path: string): Promise<Blob> {
  const params = { path: { id }, query: { path } };
  return take(client.GET("/api/v1/jobs/{id}/artifacts/content", { params, parseAs: "blob" }));
}

/** Loads all artifacts as one tar file. */
export function artifactArchive(id: string): Promise<Blob> {
  return take(client.GET("/api/v1/jobs/{id}/artifacts/archive", { params: { path: { id } }, parseAs: "blob" }));
}

/** Returns the beginning of an artifact as text. */
export async function artifactText(
  id: string,
  path: string,
  firstBytes: number,
  signal?: AbortSignal,
): Promise<string> {
  const params = { path: { id }, query: { path, first_bytes: firstBytes } };
  const { data } = await takeAnswer<unknown>(
    client.GET("/api/v1/jobs/{id}/artifacts/content", { params, parseAs: "text", ...cut(signal) }),
  );
  return typeof data === "string" ? data : "";
}

export function checkpointFile(id: string, step: number, name: string): Promise<Blob> {
  const params = { path: { id, step, name } };
  return take(client.GET("/api/v1/jobs/{id}/checkpoints/{step}/files/{name}", { params, parseAs: "blob" }));
}

export function checkpointArchive(id: string, step: number): Promise<Blob> {
  const params = { path: { id, step } };
  return take(client.GET("/api/v1/jobs/{id}/checkpoints/{step}/archive", { params, parseAs: "blob" }));
}

export function finalModel(id: string): Promise<Blob> {
  return take(client.GET("/api/v1/jobs/{id}/model", { params: { path: { id } }, parseAs: "blob" }));
}

/** Loads a code archive: a tar file, compressed with zstd. */
export function codeArchive(sha256: string): Promise<Blob> {
  return take(client.GET("/api/v1/code/{sha256}/archive", { params: { path: { sha256 } }, parseAs: "blob" }));
}

export interface LogPart {
  text: string;
  /** Length of the log before this part, in bytes. */
  offset: number;
  /** Offset at which the log continues. */
  nextOffset: number;
}

export async function logTail(id: string, task: string, tailBytes: number, signal?: AbortSignal): Promise<LogPart> {
  const params = { path: { id }, query: { task, tail_bytes: tailBytes } };
  const { data, response } = await takeAnswer<unknown>(
    client.GET("/api/v1/jobs/{id}/logs", { params, parseAs: "text", ...cut(signal) }),
  );
  const header = (name: string) => Number(response.headers.get(name) ?? 0);
  return {
    text: typeof data === "string" ? data : "",
    offset: header("muster-log-offset"),
    nextOffset: header("muster-log-next-offset"),
  };
}

export async function nodes(signal?: AbortSignal): Promise<NodeView[]> {
  return everything((after) =>
    take(client.GET("/api/v1/nodes", { params: { query: { limit: 500, ...after } }, ...cut(signal) })),
  );
}

export async function setDrained(name: string, drained: boolean): Promise<void> {
  const params = { path: { name } };
  if (drained) await take(client.POST("/api/v1/nodes/{name}/drain", { params }));
  else await take(client.POST("/api/v1/nodes/{name}/uncordon", { params }));
}

/**
 * Loads all pages. `onPage` gets the accumulated items after each page, so that a long list is
 * shown while it grows. `page` gets the number of items before it.
 */
export async function everything<T>(
  page: (after: { continue?: string }, before: number) => Promise<Page<T>>,
  onPage?: (soFar: readonly T[]) => void,
): Promise<T[]> {
  const all: T[] = [];
  let after: { continue?: string } = {};
  for (;;) {
    const next = await page(after, all.length);
    all.push(...next.items);
    onPage?.(all);
    if (next.continue === null || next.items.length === 0) return all;
    if (next.continue === after.continue)
      throw new Error(`the server returned the same page again after ${next.continue}`);
    after = { continue: next.continue };
  }
}

export function cut(signal: AbortSignal | undefined): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}
