// An event stream of the API that reconnects with back-off. It sends Last-Event-ID, so that no
// event is lost.
import { expire, token } from "../api/session";
import { actingTenant, TENANT_HEADER } from "../api/tenant";
import { SseParser, type SseMessage } from "./sse";

export type StreamState = "connecting" | "open" | "retrying" | "refused" | "ended";

export interface StreamHandlers {
  onMessage: (message: SseMessage) => void;
  /** Called at every change; `open` after each connection. */
  onState?: (state: StreamState) => void;
}

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 15_000;
/**
 * The API sends a comment at least every 15 s. A stream that is silent for this time is dead even
 * if the socket is open.
 */
const SILENCE_MS = 45_000;

/** Opens the stream; the returned function closes it. */
export function openStream(url: string, handlers: StreamHandlers): () => void {
  const stop = new AbortController();
  void run(url, handlers, stop.signal);
  return () => stop.abort();
}

async function run(url: string, { onMessage, onState }: StreamHandlers, stop: AbortSignal): Promise<void> {
  let lastId: string | null = null;
  let retryMs: number = FIRST_RETRY_MS;
  let failures = 0;
  onState?.("connecting");
  while (!stop.aborted) {
    const used = token();
    const watch = new Watchdog(stop);
    try {
      const response: Response = await fetch(url, {
        headers: headers(used, lastId),
        signal: watch.signal,
        cache: "no-store",
      });
      if (response.status === 401) expire(used);
      if (response.status >= 400 && response.status < 500 && response.status !== 429) {
        onState?.("refused");
        return;
      }
      if (!response.ok || response.body === null) throw new Error(`stream answered ${response.status}`);
      failures = 0;
      onState?.("open");
      const parser = new SseParser();
      parser.id = lastId;
      for await (const text of decoded(response.body)) {
        watch.touch();
        for (const message of parser.push(text)) {
          lastId = message.id;
          onMessage(message);
          if (message.event !== "end") continue;
          // The server has ended the stream, so there is no reconnect.
          onState?.("ended");
          return;
        }
        retryMs = parser.retryMs ?? retryMs;
      }
    } catch {
      // A lost or refused connection: both lead to the pause below.
    } finally {
      watch.end();
    }
    if (isAborted(stop)) return;
    onState?.("retrying");
    failures += 1;
    await pause(backoff(retryMs, failures), stop);
  }
}

/** A function, because the compiler does not see that a signal changes during an await. */
function isAborted(stop: AbortSignal): boolean {
  return stop.aborted;
}

function headers(used: string | null, lastId: string | null): Headers {
  const all = new Headers({ accept: "text/event-stream" });
  if (used !== null) all.set("authorization", `Bearer ${used}`);
  const tenant = actingTenant(used);
  if (tenant !== null) all.set(TENANT_HEADER, tenant);
  if (lastId !== null && lastId !== "") all.set("last-event-id", lastId);
  return all;
}

/**
 * Doubles from `firstMs` up to 15 s, with a random half, so that many pages do not reconnect at
 * once.
 */
export function backoff(firstMs: number, failures: number, random: number = Math.random()): number {
  const full = Math.min(LAST_RETRY_MS, firstMs * 2 ** (failures - 1));
  return full * (0.5 + random / 2);
}

async function* decoded(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      stop.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    stop.addEventListener("abort", done);
  });
}

/** Aborts a connection when the stream is closed, or after too long a silence. */
class Watchdog {
  private readonly connection = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly onStop = () => this.connection.abort();

  constructor(private readonly stop: AbortSignal) {
    stop.addEventListener("abort", this.onStop);
    if (stop.aborted) this.connection.abort();
    this.touch();
  }

  get signal(): AbortSignal {
    return this.connection.signal;
  }

  touch(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connection.abort(), SILENCE_MS);
  }

  end(): void {
    clearTimeout(this.timer);
    this.stop.removeEventListener("abort", this.onStop);
  }
}
