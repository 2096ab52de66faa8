// Tests of the pages with real components and the real client, on answers in the API's form.
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import type { JobView } from "../api/types";
import { adoptFragment, signOut, token } from "../api/session";
import { actingTenant } from "../api/tenant";
import { at, job, node, sample, stored } from "../live/test-data";
import { json, newWorld, open, page, problem } from "./test-world";

const world = newWorld();

/** Returns the number of requests for the list; the tiles request a longer page. */
const lists = () => world.asked.filter((request) => request.url.includes("/api/v1/jobs?limit=50")).length;

describe("signing in", () => {
  it("takes a token only after the api took it", async () => {
    signOut();
    world.routes["GET /api/v1/me"] = (request) =>
      request.headers.get("authorization") === "Bearer right"
        ? json({ tenant: "vision", user: "ada", access: "member" })
        : problem(401, "No valid token was presented");
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
    world.routes["GET /api/v1/jobs"] = () => problem(401, "No valid token was presented");
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

describe("an administrator", () => {
  it("looks at another tenant's jobs, and signing out ends that", async () => {
    world.routes["GET /api/v1/me"] = (request) =>
      json({ tenant: request.headers.get("muster-tenant") ?? "ops", user: "root", access: "admin" });
    world.routes["GET /api/v1/tenants"] = () => page({ name: "ops" }, { name: "vision" });
    world.routes["GET /api/v1/jobs"] = (request) =>
      page(job({ name: request.headers.get("muster-tenant") === "vision" ? "theirs" : "mine" }));
    open("/jobs");
    await screen.findByRole("link", { name: "mine" });
    const choice = await screen.findByRole("combobox", { name: "Tenant" });
    fireEvent.change(choice, { target: { value: "vision" } });
    await screen.findByRole("link", { name: "theirs" });
    const streams = () =>
      world.asked
        .filter((request) => request.url.includes("/stream"))
        .map((request) => request.headers.get("muster-tenant"));
    await waitFor(() => expect(streams().at(-1)).toBe("vision"));
    fireEvent.click(screen.getByRole("button", { name: "Sign out" }));
    await screen.findByRole("button", { name: "Sign in" });
    expect(actingTenant(token())).toBeNull();
  });

  it("acts for nobody with a token that another tab has taken", async () => {
    world.routes["GET /api/v1/me"] = (request) =>
      json({ tenant: request.headers.get("muster-tenant") ?? "ops", user: "root", access: "admin" });
    world.routes["GET /api/v1/tenants"] = () => page({ name: "ops" }, { name: "vision" });
    open("/jobs");
    fireEvent.change(await screen.findByRole("combobox", { name: "Tenant" }), { target: { value: "vision" } });
    fireEvent.click(await screen.findByRole("button", { name: "Back to my own" }));
    const lastTenant = () => world.asked.at(-1)?.headers.get("muster-tenant") ?? null;
    await waitFor(() => expect(lastTenant()).toBeNull());
    fireEvent.change(await screen.findByRole("combobox", { name: "Tenant" }), { target: { value: "vision" } });
    await waitFor(() => expect(lastTenant()).toBe("vision"));
    localStorage.setItem("muster.token", "another");
    window.dispatchEvent(new StorageEvent("storage", { key: "muster.token" }));
    await waitFor(() => expect(world.asked.at(-1)?.headers.get("authorization")).toBe("Bearer another"));
    expect(lastTenant()).toBeNull();
  });

  it("and a member see what their tenant holds of its quota", async () => {
    world.routes["GET /api/v1/me"] = () =>
      json({ tenant: "vision", user: "ada", access: "member", gpu_quota: 4, gpus_in_use: 3, jobs_in_use: 1 });
    open("/jobs");
    expect(await screen.findByText(/3 of 4.GPUs/)).toBeTruthy();
  });

  it("and a member of a cluster without GPUs see slots", async () => {
    const { gpus, ...rest } = node("node-a", [null]);
    const slots = gpus.map((gpu) => ({ ...gpu, kind: "cpu_slot" }));
    world.routes["GET /api/v1/nodes"] = () => page({ ...rest, gpus: slots });
    world.routes["GET /api/v1/me"] = () =>
      json({ tenant: "vision", user: "ada", access: "member", gpu_quota: null, gpus_in_use: 1, jobs_in_use: 1 });
    open("/jobs");
    expect(await screen.findByText(/1.CPU slot$/)).toBeTruthy();
  });

  it("is the only one who is asked which", async () => {
    open("/jobs");
    await screen.findByRole("link", { name: "fashion-cnn" });
    expect(screen.queryByRole("combobox", { name: "Tenant" })).toBeNull();
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
    world.routes["GET /api/v1/jobs"] = () => page(job({ phase: "paused", state: { phase: "paused" } }));
    world.push(`event: event\nid: 9-9\ndata: ${JSON.stringify(change)}\n\n`);
    await waitFor(() => expect(within(row).getByText("paused")).toBeTruthy());
  });

  it("follows the samples of its jobs without asking again", async () => {
    open("/jobs");
    const row = (await screen.findByRole("link", { name: "fashion-cnn" })).closest("tr");
    if (row === null) throw new Error("no row");
    await waitFor(() => expect(within(row).getByText("1.5000")).toBeTruthy());
    const before = lists();
    const progress = (job_id: string, step: number) => ({
      job_id,
      after_step: 0,
      samples: [sample(step, step, { loss: 0.25 })],
    });
    world.push(`event: progress\nid: 9-9\ndata: ${JSON.stringify(progress("job-2", 900))}\n\n`);
    world.push(`event: progress\nid: 9-9\ndata: ${JSON.stringify(progress("job-1", 250))}\n\n`);
    await waitFor(() => expect(within(row).getByRole("progressbar").getAttribute("aria-valuenow")).toBe("250"));
    expect(within(row).getByText("0.2500")).toBeTruthy();
    expect(within(row).getByText("1m 15s")).toBeTruthy();
    expect(lists()).toBe(before);
  });

  it("asks for the total of steps when a job tells its first sample", async () => {
    world.routes["GET /api/v1/jobs"] = () => page(job({ progress: null }));
    open("/jobs");
    await screen.findByRole("link", { name: "fashion-cnn" });
    world.routes["GET /api/v1/jobs"] = () => page(job());
    world.push(
      `event: progress\nid: 9-9\ndata: ${JSON.stringify({ job_id: "job-1", after_step: 0, samples: [sample(10, 5)] })}\n\n`,
    );
    expect((await screen.findByRole("progressbar")).getAttribute("aria-valuenow")).toBe("100");
  });

  it("says why a job waits and what would start it", async () => {
    const waiting = {
      reason: "WaitingForGpus",
      message: "needs 8 GPUs, 3 are free; blocked by 1 job",
      smallest_change: "lower scale.workers.min to 3",
      for_good: false,
      position: 2,
      detail: {
        why: { reason: "waiting_for_gpus" as const, needed_gpus: 8, free_gpus: 3, held_by: ["x"] },
        smallest_change: null,
        position: 2,
      },
    };
    world.routes["GET /api/v1/jobs"] = () => page(job({ phase: "queued", state: { phase: "queued" }, waiting }));
    open("/jobs");
    expect(await screen.findByText(/needs 8 GPUs, 3 are free/)).toBeTruthy();
    expect(screen.getByText("#2 in line")).toBeTruthy();
    expect(screen.getByText("Would start now: lower scale.workers.min to 3.")).toBeTruthy();
  });

  it("asks for what the address says, each phase by itself", async () => {
    open("/jobs?phase=running,failed&label=team%3Dvision&name=x");
    await screen.findByRole("link", { name: "fashion-cnn" });
    const query = world.asked
      .map((request) => new URL(request.url))
      .find((url) => url.pathname === "/api/v1/jobs" && url.searchParams.has("label"))?.searchParams;
    expect(query?.getAll("phase")).toEqual(["running", "failed"]);
    expect(query?.get("label")).toBe("team=vision");
    expect(query?.get("name")).toBe("x");
  });

  it("says what failed and asks again", async () => {
    let fail = true;
    world.routes["GET /api/v1/jobs"] = () =>
      fail ? problem(503, "The cluster's database cannot be reached now", "try again in a moment") : page(job());
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
    world.routes["GET /api/v1/nodes"] = () =>
      page({
        ...foreign,
        gpus: foreign.gpus.map((gpu) => ({ ...gpu, job: { id: null, name: null, tenant: null }, task_id: null })),
      });
    open("/nodes");
    expect(await screen.findByRole("button", { name: /another tenant's job/ })).toBeTruthy();
    expect(screen.getByText("other tenants' jobs")).toBeTruthy();
  });
});

describe("submitting", () => {
  it("shows each mistake with its line, then submits the corrected document once", async () => {
    let refuse = true;
    world.routes["POST /api/v1/jobs"] = () =>
      refuse
        ? problem(422, "The job document is not valid", "x", [
            { field: "engine.batch", value: "0", expected: "1 to 65536" },
          ])
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
    world.routes["GET /api/v1/jobs/new-job"] = () => json(job({ id: "new-job", name: "arrived" }));
    fireEvent.click(screen.getByRole("button", { name: "Submit" }));
    await waitFor(() => expect(world.asked.some((request) => request.url.endsWith("/jobs/new-job"))).toBe(true));
    const posts = world.asked.filter((request) => request.method === "POST");
    expect(posts).toHaveLength(2);
    // The same document keeps its key, so that a retry after a lost answer does not submit a second
    // job.
    expect(posts[0]?.headers.get("idempotency-key")).toBe(posts[1]?.headers.get("idempotency-key"));
    expect(posts[0]?.headers.get("content-type")).toBe("application/yaml");
    expect(await posts[1]?.text()).toBe("name: x\nengine:\n  batch: 0\n");
  });
});

describe("the editor of documents", () => {
  const editor = () => screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
  const posts = () => world.asked.filter((request) => request.method === "POST");

  beforeEach(() => {
    sessionStorage.clear();
    world.routes["GET /openapi.json"] = () =>
      json({
        components: {
          schemas: {
            JobSpec: { properties: { retries: { type: "integer", description: "Failures that restart the job." } } },
          },
        },
      });
  });

  it("checks the document when typing pauses, and submits nothing", async () => {
    let refuse = true;
    world.routes["POST /api/v1/jobs"] = () =>
      refuse ? problem(422, "x", "x", [{ field: "name", value: '"A"', expected: "a-z" }]) : json(job());
    open("/submit");
    fireEvent.change(await editor(), { target: { value: "name: A" } });
    expect(await screen.findByText(/expected: a-z/)).toBeTruthy();
    refuse = false;
    fireEvent.change(await editor(), { target: { value: "name: a" } });
    await waitFor(() => expect(screen.queryByText(/expected: a-z/)).toBeNull(), { timeout: 3000 });
    expect(posts().every(({ url }) => url.endsWith("?dry_run=true"))).toBe(true);
    expect(posts()).toHaveLength(2);
  });

  it("keeps the draft until it is submitted", async () => {
    world.routes["POST /api/v1/jobs"] = () => json(job({ id: "new-job" }), 201);
    world.routes["GET /api/v1/jobs/new-job"] = () => json(job({ id: "new-job" }));
    const first = open("/submit");
    fireEvent.change(await editor(), { target: { value: "name: draft" } });
    first.unmount();
    const second = open("/submit");
    expect((await editor()).value).toBe("name: draft");
    fireEvent.click(screen.getByRole("button", { name: "Submit" }));
    await waitFor(() => expect(world.asked.some(({ url }) => url.endsWith("/jobs/new-job"))).toBe(true));
    second.unmount();
    open("/submit");
    expect((await editor()).value).toContain("fashion-cnn");
  });

  it("replaces the text by a template, and takes it back", async () => {
    world.routes["POST /api/v1/jobs"] = () => json(job());
    open("/submit");
    fireEvent.change(await editor(), { target: { value: "name: mine" } });
    const choice = screen.getByRole("combobox", { name: "Template" });
    fireEvent.change(choice, { target: { value: "3" } });
    expect((await editor()).value).toContain("name: own-program");
    fireEvent.click(screen.getByRole("button", { name: "Back to my text" }));
    expect((await editor()).value).toBe("name: mine");
  });

  it("lists the fields at the caret, and inserts one", async () => {
    world.routes["POST /api/v1/jobs"] = () => json(job());
    open("/submit");
    const area = await editor();
    fireEvent.change(area, { target: { value: "name: a" } });
    area.setSelectionRange(7, 7);
    fireEvent.select(area);
    expect(await screen.findByText("Failures that restart the job.")).toBeTruthy();
    fireEvent.click(screen.getByRole("button", { name: "retries" }));
    expect((await editor()).value).toBe("name: a\nretries: ");
  });
});

describe("beginning from another job", () => {
  const written = (step: number, epoch: number, retained = true) => ({
    id: `c-${step}`,
    step,
    epoch,
    revision: 1,
    path: `x/step-${step}`,
    bytes: 1000,
    manifest_sha256: "0".repeat(64),
    files: ["model.safetensors"],
    loss: null,
    accuracy: null,
    retained,
    kept: [],
  });

  beforeEach(() => {
    world.routes["GET /api/v1/jobs/job-1"] = () => json(job({}));
    world.routes["GET /api/v1/jobs/job-1/checkpoints"] = () =>
      page(written(40, 0.5), written(80, 1), written(90, 1.1, false));
  });

  it("takes its document, and names the checkpoint", async () => {
    open("/submit?from=job-1&step=40");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    expect(editor.value).toContain("from:\n  job: job-1\n  step: 40\n");
    expect(editor.value).toContain("version: muster/v1");
    expect(editor.value).toContain("stop:\n  epochs: 1\n");
    expect(screen.getByText(/after step 40, epoch 0\.50/).textContent).toContain("so let it go further");
  });

  it("goes further where the checkpoint has reached the end, which the api would refuse", async () => {
    open("/submit?from=job-1");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    expect(editor.value).toContain("stop:\n  epochs: 2\n");
    expect(editor.value).toContain("from:\n  job: job-1\n");
    expect(screen.getByText(/after step 80, epoch 1\.00/).textContent).toContain(
      "it is raised here, stop.epochs from 1 to 2.",
    );
  });

  it("says when the checkpoint is gone, and when the job is", async () => {
    const { unmount } = open("/submit?from=job-1&step=90");
    expect(await screen.findByText(/which is not there any more/)).toBeTruthy();
    unmount();
    world.routes["GET /api/v1/jobs/job-1"] = () => problem(404, "There is no such job");
    open("/submit?from=job-1");
    expect((await screen.findByRole("alert")).textContent).toContain("There is no such job");
  });
});

describe("submitting again", () => {
  it("is offered of a program that failed, and takes its document as it was", async () => {
    const labels = { team: "vision", "muster.dev/uid": "u-1" };
    const failed = job({
      phase: "failed",
      failure: "code 3",
      spec: { version: "muster/v1", name: "mine", labels, command: { argv: ["true"] } },
    });
    world.routes["GET /api/v1/jobs/job-1"] = () => json(failed);
    const { unmount } = open("/jobs/job-1");
    const link = await screen.findByRole("link", { name: /Submit again/ });
    expect(link.getAttribute("href")).toBe("/submit?again=job-1");
    unmount();
    open("/submit?again=job-1");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    expect(editor.value).toContain("name: mine");
    expect(editor.value).not.toContain("from:");
    expect(editor.value).not.toContain("muster.dev");
  });
});

describe("a program's page", () => {
  const argv = ["python3", "-c", `print('${"x".repeat(2000)}')`];
  const program = (change: Partial<JobView>) =>
    job({ spec: { version: "muster/v1", name: "mine", command: { argv } }, progress: null, ...change });

  it("shows a long command in two lines until more is asked for", async () => {
    world.routes["GET /api/v1/jobs/job-1"] = () => json(program({}));
    open("/jobs/job-1");
    const more = await screen.findByRole("button", { name: "more" });
    const text = screen.getByText((content) => content.startsWith("python3 -c 'print("));
    expect(text.dataset.open).toBe("false");
    fireEvent.click(more);
    expect(text.dataset.open).toBe("true");
    expect(screen.getByRole("button", { name: "less" })).toBeTruthy();
  });

  it("names the split that the program logged, and nothing that it did not log", async () => {
    const known = job().progress;
    if (known === null) throw new Error("the job has progress");
    const progress = {
      ...known,
      accuracy: null,
      examples_per_s: null,
      epoch: null,
      test_accuracy: 0.5,
      test_loss: null,
      evaluated_on: "validation" as const,
    };
    world.routes["GET /api/v1/jobs/job-1"] = () => json(program({ progress }));
    open("/jobs/job-1");
    expect(await screen.findByText("Val accuracy")).toBeTruthy();
    for (const name of ["Test accuracy", "Train accuracy", "Val loss", "Epoch", "Examples/s"])
      expect(screen.queryByText(name)).toBeNull();
  });

  it("is submitted again without what only the built-in engine has", async () => {
    const spec = {
      ...program({}).spec,
      exchange: { topology: "parameter_server", consistency: { mode: "bsp" } },
      checkpoint: { every_seconds: 60, keep_last: 2 },
      evaluate: { every_epochs: 1 },
      resources: {
        worker: { gpus: 1, cpu_milli: 100, memory_bytes: 2 ** 30 },
        ps_shard: { cpu_milli: 100, memory_bytes: 2 ** 28 },
      },
    };
    world.routes["GET /api/v1/jobs/job-1"] = () => json({ ...program({}), spec });
    open("/submit?again=job-1");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    expect(editor.value).toContain("worker:");
    for (const field of ["exchange", "checkpoint", "evaluate", "ps_shard"]) expect(editor.value).not.toContain(field);
  });
});

describe("a dry run", () => {
  const interval = (p50: number) => ({ p10: at(p50 - 60), p50: at(p50), p90: at(p50 + 60) });
  const planned = (more: object) =>
    json({
      made_at: at(0),
      start: interval(120),
      finish: interval(720),
      gpu_hours: 1.5,
      own_jobs: [],
      other_jobs: { displaced: 0, earlier: 0, later: 0 },
      ...more,
    });

  it("tells when the job would start and end, and who would make way", async () => {
    world.routes["POST /api/v1/jobs"] = () => json(job());
    world.routes["POST /api/v1/plan"] = () =>
      planned({
        own_jobs: [{ id: "job-9", name: "older", displaced: true, later_s: 600 }],
        other_jobs: { displaced: 0, earlier: 0, later: 2 },
      });
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    const link = await screen.findByRole("link", { name: "older" });
    expect(link.closest("li")?.textContent).toBe("older would be stopped for it and would end 10m later");
    expect(screen.getByText("in 2m (1m to 3m)")).toBeTruthy();
    expect(screen.getByText(/2.jobs of other tenants would end later/)).toBeTruthy();
    expect(screen.getByText("The document is valid")).toBeTruthy();
    const asks = world.asked.filter((request) => request.url.endsWith("/plan"));
    expect(asks).toHaveLength(1);
    expect(asks[0]?.headers.get("content-type")).toBe("application/yaml");
  });

  it("shows no interval that says too little", async () => {
    world.routes["POST /api/v1/jobs"] = () => json(job());
    world.routes["POST /api/v1/plan"] = () =>
      planned({ finish: { p10: at(0), p50: at(300), p90: at(9000), unsure: true } });
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    expect(await screen.findByText("not known well enough yet: about 5m")).toBeTruthy();
  });

  it("says when it would start at once", async () => {
    world.routes["POST /api/v1/jobs"] = () => json(job());
    world.routes["POST /api/v1/plan"] = () => planned({ start: { p10: at(0), p50: at(0), p90: at(0.4) } });
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    expect(await screen.findByText("at once")).toBeTruthy();
    expect(screen.getByText("No job of another tenant would notice.")).toBeTruthy();
  });

  it("is not green for what can never start, and says why", async () => {
    world.routes["POST /api/v1/jobs"] = () =>
      json(job({ spec: { ...job().spec, scale: { workers: { min: 9, max: 9 } } } }));
    world.routes["POST /api/v1/plan"] = () => planned({ start: null, finish: null, gpu_hours: 0 });
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    expect((await screen.findByText(/never starts: needs/)).textContent).toBe(
      "As the job and the cluster are, it never starts: needs 9\u00A0GPUs; the whole cluster has 2",
    );
    expect(screen.getByText("The document is valid").closest(".panel-good")).toBeNull();
    expect(screen.queryByText("not within what can be foreseen")).toBeNull();
  });

  it("stays useful without a scheduler, and asks nothing of a document with mistakes", async () => {
    world.routes["POST /api/v1/jobs"] = () => json(job());
    world.routes["POST /api/v1/plan"] = () => problem(504, "The scheduler did not answer", "No scheduler leads now.");
    open("/submit");
    fireEvent.click(await screen.findByRole("button", { name: "Dry run" }));
    expect(await screen.findByText(/gave no forecast: No scheduler leads now/)).toBeTruthy();
    expect(screen.getByText("The document is valid")).toBeTruthy();

    world.asked = [];
    world.routes["POST /api/v1/jobs"] = () =>
      problem(422, "The job document is not valid", "x", [{ field: "name", value: "", expected: "a name" }]);
    fireEvent.click(screen.getByRole("button", { name: "Dry run" }));
    await screen.findByText(/expected: a name/);
    expect(world.asked.some((request) => request.url.endsWith("/plan"))).toBe(false);
  });
});

it("says so where there is no page", async () => {
  open("/nowhere");
  expect(await screen.findByText("There is no page at this address")).toBeTruthy();
});
