// The calls of the study pages.
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

/** Trials that are loaded with their curves: the points of more would fill a browser's memory, and no screen has pixels for them. */
export const CURVES_AT_MOST = 10_000;
/** What the api gives on one page with curves, and without. */
const WITH_CURVES = 100;
const WITHOUT = 500;

/** All trials of the study; those after the first 10,000 without their curves. `onPage` is told what has come so far. */
export function trials(id: string, signal?: AbortSignal, onPage?: (soFar: readonly TrialView[]) => void): Promise<TrialView[]> {
  return everything((after, before) => {
    const curves = before < CURVES_AT_MOST;
    const query = { curves, limit: curves ? WITH_CURVES : WITHOUT, ...after };
    return take(client.GET("/api/v1/studies/{id}/trials", { params: { path: { id }, query }, ...cut(signal) }));
  }, onPage);
}

/** The best trial, or the first of the Pareto front; null before any trial has completed a rung. */
export async function bestTrial(id: string, signal?: AbortSignal): Promise<BestTrial | null> {
  const page = await take(client.GET("/api/v1/studies/{id}/best", { params: { path: { id }, query: { limit: 1 } }, ...cut(signal) }));
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

/** At most once under the key. */
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

/** All trials as one file. */
export function exportStudy(id: string, format: "csv" | "json"): Promise<Blob> {
  return take(client.GET("/api/v1/studies/{id}/export", { params: { path: { id }, query: { format } }, parseAs: "blob" }));
}
