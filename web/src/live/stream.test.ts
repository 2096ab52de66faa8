import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { hasExpired, signIn, token } from "../api/session";
import { backoff, openStream, type StreamState } from "./stream";
import type { SseMessage } from "./sse";

/** A server that sends one answer per connection and records the requests. */
function server(...answers: (Response | Error)[]) {
  const asked: { lastEventId: string | null; authorization: string | null }[] = [];
  vi.stubGlobal("fetch", (_url: string, init: { headers: Headers; signal: AbortSignal }) => {
    asked.push({ lastEventId: init.headers.get("last-event-id"), authorization: init.headers.get("authorization") });
    const answer = answers.shift();
    if (answer instanceof Error) return Promise.reject(answer);
    return answer === undefined ? new Promise(() => undefined) : Promise.resolve(answer);
  });
  return asked;
}

function body(text: string): Response {
  return new Response(text, { headers: { "content-type": "text/event-stream" } });
}

describe("a stream that heals itself", () => {
  const messages: SseMessage[] = [];
  const states: StreamState[] = [];
  let close: () => void = () => undefined;
  const open = () => {
    close = openStream("/api/v1/stream", {
      onMessage: (message) => messages.push(message),
      onState: (state) => states.push(state),
    });
  };

  beforeEach(() => {
    vi.useFakeTimers();
    messages.length = 0;
    states.length = 0;
    signIn("secret");
  });
  afterEach(() => {
    close();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  it("comes back with the last id, so that the server can go on from there", async () => {
    const asked = server(
      body("id: 7-1\ndata: a\n\nid: 7-2\ndata: b\n\n"),
      new Error("down"),
      body("id: 7-3\ndata: c\n\n"),
    );
    open();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(messages.map((message) => message.data)).toEqual(["a", "b", "c"]);
    expect(asked.slice(0, 4).map((request) => request.lastEventId)).toEqual([null, "7-2", "7-2", "7-3"]);
    expect(asked[0]?.authorization).toBe("Bearer secret");
    expect(states.slice(0, 4)).toEqual(["connecting", "open", "retrying", "retrying"]);
  });

  it("leaves the token and does not come back when it is refused", async () => {
    const asked = server(new Response("{}", { status: 401 }));
    open();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toHaveLength(1);
    expect(token()).toBeNull();
    expect(hasExpired()).toBe(true);
    expect(states).toEqual(["connecting", "refused"]);
  });

  it("does not come back after the server said that nothing follows", async () => {
    const asked = server(body('event: end\ndata: {"reason":"the task is gone"}\n\n'));
    open();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toHaveLength(1);
    expect(states).toEqual(["connecting", "open", "ended"]);
  });

  it("asks again after a failure of the server, and stops once closed", async () => {
    const asked = server(new Response("", { status: 503 }), new Response("", { status: 429 }));
    open();
    await vi.advanceTimersByTimeAsync(5000);
    expect(asked).toHaveLength(3);
    close();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toHaveLength(3);
  });
});

describe("back-off", () => {
  it("doubles to a bound and spreads", () => {
    expect([1, 2, 3, 20].map((failures) => backoff(500, failures, 1))).toEqual([500, 1000, 2000, 15_000]);
    expect(backoff(500, 1, 0)).toBe(250);
  });
});
