// API calls of the study pages.
import { cut, everything, typed, type Page } from "./calls";
import { client, take } from "./client";
import type { BestTrial, StudyView, TrialView } from "./types";

export function studies(after: string | null, signal?: AbortSignal): Promise<Page<StudyView>> {
  const query = after === null ? { limit: 50 } : { limit: 50, continue: after };
  return take(client.GET("/api/v1/studies", { params: { query }, ...cut(signal) }));
}

export function study(id: string, signal?: AbortSignal): Promise<StudyView> {
  return take(client.GET("/api/v1/studies/{id}", { params: { path: { id } }, ...cut(signal) }));
}

/**
 * Maximum number of trials that are loaded with their curves. More points would exceed the
 * browser's memory, and no screen shows them.
 */
export const CURVES_AT_MOST = 10_000;
/** Page sizes of the API, with curves and without. */
const WITH_CURVES = 100;
const WITHOUT = 500;

/**
 * Loads all trials of the study; those after the first 10,000 without curves. `onPage` gets the
 * accumulated trials.
 */
export function trials(
  id: string,
  signal?: AbortSignal,
  onPage?: (soFar: readonly TrialView[]) => void,
): Promise<TrialView[]> {
  return everything((after, before) => {
    const curves = before < CURVES_AT_MOST;
    const query = { curves, limit: curves ? WITH_CURVES : WITHOUT, ...after };
    return take(client.GET("/api/v1/studies/{id}/trials", { params: { path: { id }, query }, ...cut(signal) }));
  }, onPage);
}

/**
 * Returns the best trial, or the first of the Pareto front; null before a trial has completed a
 * rung.
 */
export async function bestTrial(id: string, signal?: AbortSignal): Promise<BestTrial | null> {
  const page = await take(
    client.GET("/api/v1/studies/{id}/best", { params: { path: { id }, query: { limit: 1 } }, ...cut(signal) }),
  );
  return page.items[0] ?? null;
}

export type StudyVerb = "pause" | "resume" | "cancel" | "delete";

export async function actOnStudy(id: string, verb: StudyVerb): Promise<void> {
  const params = { path: { id } };
  if (verb === "pause") await take(client.POST("/api/v1/studies/{id}/pause", { params }));
  else if (verb === "resume") await take(client.POST("/api/v1/studies/{id}/resume", { params }));
  else if (verb === "cancel") await take(client.POST("/api/v1/studies/{id}/cancel", { params }));
  else await take(client.DELETE("/api/v1/studies/{id}", { params }));
}

/** Is carried out at most once per key. */
export async function extendStudy(id: string, trials: number, idempotencyKey: string): Promise<void> {
  const params = { path: { id }, header: { "Idempotency-Key": idempotencyKey } };
  await take(client.POST("/api/v1/studies/{id}/extend", { params, body: { trials } }));
}

export function createStudy(document: string, dryRun: boolean, idempotencyKey: string): Promise<StudyView> {
  return take(
    client.POST("/api/v1/studies", {
      params: { query: dryRun ? { dry_run: true } : {}, header: dryRun ? {} : { "Idempotency-Key": idempotencyKey } },
      ...typed(document),
    }),
  );
}

/** Returns all trials as one file. */
export function exportStudy(id: string, format: "csv" | "json"): Promise<Blob> {
  return take(
    client.GET("/api/v1/studies/{id}/export", { params: { path: { id }, query: { format } }, parseAs: "blob" }),
  );
}
