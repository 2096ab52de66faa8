// The only access to the REST API: typed by its OpenAPI document, authorised by the session.
// Failures are ApiErrors.
import createClient, { type Middleware } from "openapi-fetch";
import { ApiError, fromBody, fromThrown } from "./problem";
import type { paths } from "./schema";
import { expire, token } from "./session";
import { actingTenant, TENANT_HEADER } from "./tenant";

const authorize: Middleware = {
  onRequest({ request }) {
    const used = bearer(request) ?? token();
    if (used !== null) request.headers.set("authorization", `Bearer ${used}`);
    const tenant = actingTenant(used);
    if (tenant !== null) request.headers.set(TENANT_HEADER, tenant);
  },
  onResponse({ request, response }) {
    if (response.status === 401) expire(bearer(request));
  },
};

function bearer(request: Request): string | null {
  return request.headers.get("authorization")?.replace(/^Bearer /, "") ?? null;
}

export const client = createClient<paths>({
  baseUrl: window.location.origin,
  fetch: (request) => globalThis.fetch(request),
});
client.use(authorize);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Returns the body of a successful answer; throws an ApiError otherwise. */
export async function take<T>(pending: Promise<Answer<T>>): Promise<T> {
  return (await takeAnswer(pending)).data as T;
}

/** Does the same as `take`, and returns the response for callers that need its headers. */
export async function takeAnswer<T>(pending: Promise<Answer<T>>): Promise<Answer<T>> {
  const answer = await pending.catch((thrown: unknown) => {
    if (thrown instanceof DOMException && thrown.name === "AbortError") throw thrown;
    throw fromThrown(thrown);
  });
  if (!answer.response.ok) throw fromBody(answer.response.status, answer.error);
  return answer;
}

export { ApiError };
