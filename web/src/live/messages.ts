// Decodes messages of the API's streams: stored events, samples, and pieces of a log.
import type { SampleView, StoredEvent } from "../api/types";
import type { SseMessage } from "./sse";

export type LiveMessage =
  | { kind: "event"; event: StoredEvent }
  | { kind: "progress"; jobId: string; afterStep: number; samples: readonly SampleView[] };

/** Returns `null` for an unknown message, which a newer API may send. */
export function decode(message: SseMessage): LiveMessage | null {
  const body = parsed(message.data);
  if (body === null) return null;
  if (message.event === "progress") {
    if (typeof body.job_id !== "string" || typeof body.after_step !== "number" || !Array.isArray(body.samples))
      return null;
    return { kind: "progress", jobId: body.job_id, afterStep: body.after_step, samples: body.samples as SampleView[] };
  }
  const inner = body.event;
  if (typeof inner !== "object" || inner === null || typeof (inner as { kind?: unknown }).kind !== "string")
    return null;
  return { kind: "event", event: body as unknown as StoredEvent };
}

function parsed(data: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

/** Returns the new text of a followed log. */
export function logPart(message: SseMessage): string | null {
  const body = message.event === "log" ? parsed(message.data) : null;
  return typeof body?.text === "string" ? body.text : null;
}
