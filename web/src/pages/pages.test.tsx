// The pages as users meet them: real components and the real client over answers in the api's own form.
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { App } from "../app";
import { adoptFragment, signIn, signOut, token } from "../api/session";
import { at, job, node, sample, stored } from "../live/test-data";
import { search, study, trial } from "./study/test-data";

type Answer = (request: Request) => Response | Promise<Response>;

let asked: Request[] = [];
let routes: Record<string, Answer> = {};
let push: (text: string) => void = () => undefined;

const json = (body: unknown, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": status >= 400 ? "application/problem+json" : "application/json" } });
const page = (...items: unknown[]) => json({ items, continue: null });
const problem = (status: number, title: string, detail = "", errors: unknown[] = []) => json({ type: "urn:muster:problem:x", title, status, detail, errors }, status);

function stream(): Response {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(encoder.encode('event: opened\nid: 1-1\ndata: {"cursor":"1-1"}\n\n'));
      push = (text) => controller.enqueue(encoder.encode(text));
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

/** How often the list itself was asked for; the tiles ask for a longer page. */
const lists = () => asked.filter((request) => request.url.includes("/api/v1/jobs?limit=50")).length;

function open(path: string) {
  return render(
    <MemoryRouter initialEntries={[path]}>
      <App />
    </MemoryRouter>,
  );
}

beforeEach(() => {
  asked = [];
  routes = {
    "GET /api/v1/me": () => json({ tenant: "vision", user: "ada", access: "member" }),
    "GET /api/v1/jobs": () => page(job()),
    "GET /api/v1/nodes": () => page(node("node-a", ["job-1", null])),
    "GET /api/v1/stream": stream,
  };
  vi.stubGlobal("fetch", (input: Request | string, init?: RequestInit) => {
    const request = input instanceof Request ? input : new Request(new URL(input, location.origin), init);
    asked.push(request);
    const route = routes[`${request.method} ${new URL(request.url).pathname}`];
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

describe("signing in", () => {
  it("takes a token only after the api took it", async () => {
    signOut();
    routes["GET /api/v1/me"] = (request) =>
      request.headers.get("authorization") === "Bearer right" ? json({ tenant: "vision", user: "ada", access: "member" }) : problem(401, "No valid token was presented");
    open("/jobs");
    fireEvent.change(screen.getByLabelText("Access token"), { target: { value: "wrong" } });
    fireEvent.click(screen.getByRole("button", { name: "Sign in" }));
    expect((await screen.findByRole("alert")).textContent).toContain("not known");
    expect(token()).toBeNull();
    fireEvent.change(screen.getByLabelText("Access token"), { target: { value: " right " } });
    fireEvent.click(screen.getByRole("button", { name: "Sign in" }));
    await screen.findByRole("heading", { name: "Jobs" });
    expect(token()).toBe("right");
  });

  it("comes back when the token is refused later", async () => {
    routes["GET /api/v1/jobs"] = () => problem(401, "No valid token was presented");
    open("/jobs");
    expect((await screen.findByRole("alert")).textContent).toContain("no longer accepted");
  });

  it("takes a token from the fragment and cleans the address", () => {
    signOut();
    history.replaceState(null, "", "/jobs?phase=running#token=from-up");
    expect(adoptFragment(location, history)).toBe(true);
    expect(token()).toBe("from-up");
    expect(location.pathname + location.search + location.hash).toBe("/jobs?phase=running");
    history.replaceState(null, "", "/");
  });
});

describe("the list of jobs", () => {
  it("shows where a job is and follows its events", async () => {
    open("/jobs");
    const row = (await screen.findByRole("link", { name: "fashion-cnn" })).closest("tr");
    if (row === null) throw new Error("no row");
    expect(within(row).getByText("running")).toBeTruthy();
    expect(within(row).getByRole("progressbar").getAttribute("aria-valuenow")).toBe("100");
    expect(within(row).getByText("48.00 %")).toBeTruthy();
    const change = stored(30, { kind: "job_state_changed", revision: 1, state: { phase: "paused" } });
    routes["GET /api/v1/jobs"] = () => page(job({ phase: "paused", state: { phase: "paused" } }));
    push(`event: event\nid: 9-9\ndata: ${JSON.stringify(change)}\n\n`);
    await waitFor(() => expect(within(row).getByText("paused")).toBeTruthy());
  });

  it("follows the samples of its jobs without asking again", async () => {
    open("/jobs");
    const row = (await screen.findByRole("link", { name: "fashion-cnn" })).closest("tr");
    if (row === null) throw new Error("no row");
    await waitFor(() => expect(within(row).getByText("1.5000")).toBeTruthy());
    const before = lists();
    const progress = (job_id: string, step: number) => ({ job_id, after_step: 0, samples: [sample(step, step, { loss: 0.25 })] });
    push(`event: progress\nid: 9-9\ndata: ${JSON.stringify(progress("job-2", 900))}\n\n`);
    push(`event: progress\nid: 9-9\ndata: ${JSON.stringify(progress("job-1", 250))}\n\n`);
    await waitFor(() => expect(within(row).getByRole("progressbar").getAttribute("aria-valuenow")).toBe("250"));
    expect(within(row).getByText("0.2500")).toBeTruthy();
    expect(within(row).getByText("1m 15s")).toBeTruthy();
    expect(lists()).toBe(before);
  });

  it("asks for the total of steps when a job tells its first sample", async () => {
    routes["GET /api/v1/jobs"] = () => page(job({ progress: null }));
    open("/jobs");
    await screen.findByRole("link", { name: "fashion-cnn" });
    routes["GET /api/v1/jobs"] = () => page(job());
    push(`event: progress\nid: 9-9\ndata: ${JSON.stringify({ job_id: "job-1", after_step: 0, samples: [sample(10, 5)] })}\n\n`);
    expect((await screen.findByRole("progressbar")).getAttribute("aria-valuenow")).toBe("100");
  });

  it("says why a job waits and what would start it", async () => {
    const waiting = {
      reason: "WaitingForGpus",
      message: "needs 8 GPUs, 3 are free; 1 jobs hold the others",
      smallest_change: "lower scale.workers.min to 3",
      position: 2,
      detail: { why: { reason: "waiting_for_gpus" as const, needed_gpus: 8, free_gpus: 3, held_by: ["x"] }, smallest_change: null, position: 2 },
    };
    routes["GET /api/v1/jobs"] = () => page(job({ phase: "queued", state: { phase: "queued" }, waiting }));
    open("/jobs");
    expect(await screen.findByText(/needs 8 GPUs, 3 are free/)).toBeTruthy();
    expect(screen.getByText("#2 in line")).toBeTruthy();
    expect(screen.getByText("Would start now: lower scale.workers.min to 3.")).toBeTruthy();
  });

  it("asks for what the address says, each phase by itself", async () => {
    open("/jobs?phase=running,failed&label=team%3Dvision&name=x");
    await screen.findByRole("link", { name: "fashion-cnn" });
    const query = asked.map((request) => new URL(request.url)).find((url) => url.pathname === "/api/v1/jobs" && url.searchParams.has("label"))?.searchParams;
    expect(query?.getAll("phase")).toEqual(["running", "failed"]);
    expect(query?.get("label")).toBe("team=vision");
    expect(query?.get("name")).toBe("x");
  });

  it("says what failed and asks again", async () => {
    let fail = true;
    routes["GET /api/v1/jobs"] = () => (fail ? problem(503, "The cluster's database cannot be reached now", "try again in a moment") : page(job()));
    open("/jobs");
    const alert = await screen.findByRole("alert");
    expect(alert.textContent).toContain("try again in a moment");
    fail = false;
    fireEvent.click(within(alert).getByRole("button", { name: "Try again" }));
    expect(await screen.findByRole("link", { name: "fashion-cnn" })).toBeTruthy();
  });
});

describe("nodes", () => {
  it("names every GPU and who holds it, and hides verbs from members", async () => {
    open("/nodes");
    const card = await screen.findByRole("region", { name: "Node node-a" });
    expect(within(card).getByRole("link", { name: /GPU 0, NVIDIA H200, 128\u202FGiB: job-1 \(vision\)/ })).toBeTruthy();
    expect(within(card).getByRole("button", { name: /GPU 1.*free/ })).toBeTruthy();
    expect(within(card).queryByRole("button", { name: /Drain/ })).toBeNull();
  });

  it("keeps another tenant's job to itself", async () => {
    const foreign = node("node-a", ["x"]);
    routes["GET /api/v1/nodes"] = () => page({ ...foreign, gpus: foreign.gpus.map((gpu) => ({ ...gpu, job: { id: "x", name: null, tenant: null } })) });
    open("/nodes");
    expect(await screen.findByRole("button", { name: /another tenant's job/ })).toBeTruthy();
  });
});

describe("submitting", () => {
  it("shows each mistake with its line, then submits the corrected document once", async () => {
    let refuse = true;
    routes["POST /api/v1/jobs"] = () =>
      refuse
        ? problem(422, "The job document is not valid", "x", [{ field: "engine.batch", value: "0", expected: "1 to 65536" }])
        : json(job({ id: "new-job", submitted_at: at(0) }), 201);
    open("/submit");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    fireEvent.change(editor, { target: { value: "name: x\nengine:\n  batch: 0\n" } });
    fireEvent.click(screen.getByRole("button", { name: "Submit" }));
    expect(await screen.findByText("engine.batch")).toBeTruthy();
    expect(screen.getByText(/expected: 1 to 65536/)).toBeTruthy();
    fireEvent.click(screen.getByRole("button", { name: "Line 3" }));
    expect(editor.value.slice(editor.selectionStart, editor.selectionEnd)).toBe("  batch: 0");

    refuse = false;
    routes["GET /api/v1/jobs/new-job"] = () => json(job({ id: "new-job", name: "arrived" }));
    fireEvent.click(screen.getByRole("button", { name: "Submit" }));
    await waitFor(() => expect(asked.some((request) => request.url.endsWith("/jobs/new-job"))).toBe(true));
    const posts = asked.filter((request) => request.method === "POST");
    expect(posts).toHaveLength(2);
    // The same document keeps its key, so that a retry after a lost answer does not submit a second job.
    expect(posts[0]?.headers.get("idempotency-key")).toBe(posts[1]?.headers.get("idempotency-key"));
    expect(posts[0]?.headers.get("content-type")).toBe("application/yaml");
    expect(await posts[1]?.text()).toBe("name: x\nengine:\n  batch: 0\n");
  });
});

describe("beginning from another job", () => {
  it("takes its document, and names the checkpoint", async () => {
    routes["GET /api/v1/jobs/job-1"] = () => json(job({}));
    open("/submit?from=job-1&step=40");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    await waitFor(() => expect(editor.value).toContain("from:\n  job: job-1\n  step: 40\n"));
    expect(editor.value).toContain("version: muster/v1");
  });
});

describe("a dry run", () => {
  const interval = (p50: number) => ({ p10: at(p50 - 60), p50: at(p50), p90: at(p50 + 60) });
  const planned = (more: object) =>
    json({ made_at: at(0), start: interval(120), finish: interval(720), gpu_hours: 1.5, own_jobs: [], other_jobs: { displaced: 0, earlier: 0, later: 0 }, ...more });

  it("tells when the job would start and end, and who would make way", async () => {
    routes["POST /api/v1/jobs"] = () => json(job());
    routes["POST /api/v1/plan"] = () =>
      planned({
        own_jobs: [{ id: "job-9", name: "older", displaced: true, later_s: 600 }],
        other_jobs: { displaced: 0, earlier: 0, later: 2 },
      });
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    const link = await screen.findByRole("link", { name: "older" });
    expect(link.closest("li")?.textContent).toBe("older would be stopped with a checkpoint and would end 10m later");
    expect(screen.getByText("in 2m (1m to 3m)")).toBeTruthy();
    expect(screen.getByText(/2.jobs of other tenants would end later/)).toBeTruthy();
    expect(screen.getByText("The document is valid")).toBeTruthy();
    const asks = asked.filter((request) => request.url.endsWith("/plan"));
    expect(asks).toHaveLength(1);
    expect(asks[0]?.headers.get("content-type")).toBe("application/yaml");
  });

  it("says when it would start at once", async () => {
    routes["POST /api/v1/jobs"] = () => json(job());
    routes["POST /api/v1/plan"] = () => planned({ start: { p10: at(0), p50: at(0), p90: at(0.4) } });
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    expect(await screen.findByText("at once")).toBeTruthy();
    expect(screen.getByText("No job of another tenant would notice.")).toBeTruthy();
  });

  it("stays useful without a scheduler, and asks nothing of a document with mistakes", async () => {
    routes["POST /api/v1/jobs"] = () => json(job());
    routes["POST /api/v1/plan"] = () => problem(504, "The scheduler did not answer", "No scheduler leads now.");
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    expect(await screen.findByText(/gave no forecast: No scheduler leads now/)).toBeTruthy();
    expect(screen.getByText("The document is valid")).toBeTruthy();

    asked = [];
    routes["POST /api/v1/jobs"] = () => problem(422, "The job document is not valid", "x", [{ field: "name", value: "", expected: "a name" }]);
    fireEvent.click(screen.getByRole("button", { name: "Dry run" }));
    await screen.findByText(/expected: a name/);
    expect(asked.some((request) => request.url.endsWith("/plan"))).toBe(false);
  });
});

describe("studies", () => {
  const trials = [trial(0, { rate: 0.01, width: 64 }, 0.61), trial(1, { rate: 0.05, width: 128 }, 0.75, { best: true }), trial(2, { rate: 0.002, width: 32 }, null)];
  const numbers = () => within(screen.getByRole("table", { name: "Trials" })).getAllByRole("rowheader").map((cell) => Number.parseInt(cell.textContent, 10));

  beforeEach(() => {
    routes["GET /api/v1/studies"] = () => page(study({ best: [trials[1] ?? trial(1, {}, 0.75)] }));
    routes["GET /api/v1/studies/study-1"] = () => json(study({ best: [trials[1] ?? trial(1, {}, 0.75)] }));
    routes["GET /api/v1/studies/study-1/trials"] = () => page(...trials);
    routes["GET /api/v1/studies/study-1/best"] = () => page({ trial: trials[1], checkpoint: null, model_path: null });
  });

  it("are listed with their phase, their goal and their best", async () => {
    open("/studies");
    const row = (await screen.findByRole("link", { name: "fashion-asha" })).closest("tr");
    if (row === null) throw new Error("no row");
    expect(within(row).getByText("running")).toBeTruthy();
    expect(within(row).getByText(/maximize test_accuracy/)).toBeTruthy();
    expect(within(row).getByText("75.00 %")).toBeTruthy();
  });

  it("say how to begin where there is none", async () => {
    routes["GET /api/v1/studies"] = () => page();
    open("/studies");
    expect(await screen.findByText("No studies yet")).toBeTruthy();
  });

  it("show their trials, the best first, and in another order when asked", async () => {
    open("/studies/study-1");
    await screen.findByRole("table", { name: "Trials" });
    expect(numbers()).toEqual([1, 0, 2]);
    fireEvent.click(screen.getByRole("button", { name: "rate" }));
    expect(numbers()).toEqual([2, 0, 1]);
    expect(screen.getAllByRole("link", { name: "trial 1" })[0]?.getAttribute("href")).toBe("/jobs/job-1");
  });

  it("show the Pareto front of two objectives, and what cannot be told yet", async () => {
    const objectives = [{ metric: "test_accuracy", goal: "maximize" as const }, { metric: "test_loss", goal: "minimize" as const }];
    const document = { ...study().document, search: search({ objectives }) };
    routes["GET /api/v1/studies/study-1"] = () => json(study({ document }));
    routes["GET /api/v1/studies/study-1/trials"] = () => page(trial(0, { rate: 0.01 }, [0.6, 0.4], { best: true }), trial(1, { rate: 0.1 }, [0.5, 0.5]));
    open("/studies/study-1");
    expect(await screen.findByRole("heading", { name: /Pareto front of 1.trial$/ })).toBeTruthy();
    expect(screen.getByRole("img", { name: /test_loss by test_accuracy of 2.trials, 1 of them/ })).toBeTruthy();
    expect(screen.getByText("Too few trials to tell")).toBeTruthy();
    expect(screen.getByRole("img", { name: /Parallel coordinates of 2.trials: rate \(log\), width, test_accuracy/ })).toBeTruthy();
  });

  it("say why there is no trial", async () => {
    routes["GET /api/v1/studies/study-1"] = () => json(study({ phase: "paused" }));
    routes["GET /api/v1/studies/study-1/trials"] = () => page();
    open("/studies/study-1");
    expect(await screen.findByText("The study is paused; resume it to create trials.")).toBeTruthy();
  });

  it("show why the server refused a verb", async () => {
    routes["POST /api/v1/studies/study-1/pause"] = () => problem(409, "Not possible now", "The study is closing.");
    open("/studies/study-1");
    fireEvent.click(await screen.findByRole("button", { name: "Pause" }));
    fireEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Pause" }));
    expect((await screen.findByRole("alert")).textContent).toContain("The study is closing.");
  });

  it("are extended by the number that was typed", async () => {
    let sent: unknown = null;
    routes["POST /api/v1/studies/study-1/extend"] = async (request) => {
      sent = await request.json();
      return json(study(), 202);
    };
    open("/studies/study-1");
    fireEvent.click(await screen.findByRole("button", { name: "Extend" }));
    fireEvent.change(screen.getByLabelText("More trials"), { target: { value: "12" } });
    fireEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Extend" }));
    await waitFor(() => expect(sent).toEqual({ trials: 12 }));
    await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  });

  it("are created from a document, whose mistakes are shown with their lines", async () => {
    let refuse = true;
    routes["POST /api/v1/studies"] = () =>
      refuse ? problem(422, "The study document is not valid", "x", [{ field: "search.trials", value: "0", expected: "1 to 100000" }]) : json(study(), 201);
    open("/studies/new");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Study document, YAML or JSON");
    expect(editor.value).toContain("kind: study");
    fireEvent.change(editor, { target: { value: "name: x\nsearch:\n  trials: 0\n" } });
    fireEvent.click(screen.getByRole("button", { name: "Create" }));
    expect(await screen.findByText("search.trials")).toBeTruthy();
    fireEvent.click(screen.getByRole("button", { name: "Line 3" }));
    expect(editor.value.slice(editor.selectionStart, editor.selectionEnd)).toBe("  trials: 0");
    refuse = false;
    fireEvent.click(screen.getByRole("button", { name: "Create" }));
    await screen.findByRole("table", { name: "Trials" });
    const posts = asked.filter((request) => request.method === "POST");
    expect(posts.map((request) => request.headers.get("content-type"))).toEqual(["application/yaml", "application/yaml"]);
    expect(posts[0]?.headers.get("idempotency-key")).toBe(posts[1]?.headers.get("idempotency-key"));
  });

  it("say from which trial one took over, and hand out the file of all", async () => {
    routes["GET /api/v1/studies/study-1/trials"] = () => page(trial(0, { rate: 0.01 }, 0.6), trial(1, { rate: 0.1 }, 0.7, { from: { trial: 0, step: 1 } }));
    routes["GET /api/v1/studies/study-1/export"] = () => new Response("number,state\n", { headers: { "content-type": "text/csv" } });
    const saved = vi.fn(() => "blob:x");
    vi.stubGlobal("URL", Object.assign(URL, { createObjectURL: saved, revokeObjectURL: () => undefined }));
    open("/studies/study-1");
    expect((await screen.findByText("from 0")).title).toMatch(/^It took over trial 0 as it was after 1.epoch$/);
    fireEvent.click(screen.getByRole("button", { name: "Export" }));
    await waitFor(() => expect(saved).toHaveBeenCalledTimes(1));
  });

  it("are one click from the jobs of their trials", async () => {
    routes["GET /api/v1/jobs/job-1"] = () => json(job({ trial: { study_id: "study-1", number: 4, state: "waiting" } }));
    open("/jobs/job-1");
    expect((await screen.findByRole("link", { name: "trial 4 of its study, between rungs" })).getAttribute("href")).toBe("/studies/study-1");
  });
});

it("says so where there is no page", async () => {
  open("/nowhere");
  expect(await screen.findByText("There is no page at this address")).toBeTruthy();
});
