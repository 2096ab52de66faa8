// The whole application for tests, on answers in the API's form: requests, answers and stream
// messages.
import { cleanup, render, type RenderResult } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { afterEach, beforeEach, vi } from "vitest";
import { App } from "../app";
import { signIn, signOut } from "../api/session";
import { job, node } from "../live/test-data";

type Answer = (request: Request) => Response | Promise<Response>;

export interface World {
  asked: Request[];
  /** Answers by method and path: `GET /api/v1/jobs`. */
  routes: Record<string, Answer>;
  /** Sends a message on the newest stream. */
  push: (text: string) => void;
}

export const json = (body: unknown, status = 200) =>
  new Response(JSON.stringify(body), {
    status,
    headers: { "content-type": status >= 400 ? "application/problem+json" : "application/json" },
  });
export const page = (...items: unknown[]) => json({ items, continue: null });
export const problem = (status: number, title: string, detail = "", errors: unknown[] = []) =>
  json({ type: "urn:muster:problem:x", title, status, detail, errors }, status);

export function open(path: string): RenderResult {
  return render(
    <MemoryRouter initialEntries={[path]}>
      <App />
    </MemoryRouter>,
  );
}

/** Creates a new world for each test of the file. */
export function newWorld(): World {
  const world: World = { asked: [], routes: {}, push: () => undefined };
  const stream = () => {
    const encoder = new TextEncoder();
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(encoder.encode('event: opened\nid: 1-1\ndata: {"cursor":"1-1"}\n\n'));
        world.push = (text) => controller.enqueue(encoder.encode(text));
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  beforeEach(() => {
    world.asked = [];
    world.routes = {
      "GET /api/v1/me": () => json({ tenant: "vision", user: "ada", access: "member" }),
      "GET /api/v1/jobs": () => page(job()),
      "GET /api/v1/nodes": () => page(node("node-a", ["job-1", null])),
      "GET /api/v1/stream": stream,
    };
    vi.stubGlobal("fetch", (input: Request | string, init?: RequestInit) => {
      const request = input instanceof Request ? input : new Request(new URL(input, location.origin), init);
      world.asked.push(request);
      const route = world.routes[`${request.method} ${new URL(request.url).pathname}`];
      return Promise.resolve(route === undefined ? problem(404, "There is no such thing") : route(request));
    });
    vi.stubGlobal("scrollTo", () => undefined);
    signIn("good");
  });
  afterEach(() => {
    cleanup();
    vi.unstubAllGlobals();
    signOut();
  });
  return world;
}
