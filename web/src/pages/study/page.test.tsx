// Tests of the study pages.
import { act, fireEvent, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open, page, problem } from "../test-world";
import { search, study, trial } from "./test-data";

const world = newWorld();

describe("studies", () => {
  const trials = [
    trial(0, { rate: 0.01, width: 64 }, 0.61),
    trial(1, { rate: 0.05, width: 128 }, 0.75, { best: true }),
    trial(2, { rate: 0.002, width: 32 }, null),
  ];
  const numbers = () =>
    within(screen.getByRole("table", { name: "Trials" }))
      .getAllByRole("rowheader")
      .map((cell) => Number.parseInt(cell.textContent, 10));

  beforeEach(() => {
    world.routes["GET /api/v1/studies"] = () => page(study({ best: [trials[1] ?? trial(1, {}, 0.75)] }));
    world.routes["GET /api/v1/studies/study-1"] = () => json(study({ best: [trials[1] ?? trial(1, {}, 0.75)] }));
    world.routes["GET /api/v1/studies/study-1/trials"] = () => page(...trials);
    world.routes["GET /api/v1/studies/study-1/best"] = () =>
      page({ trial: trials[1], checkpoint: null, model_path: null });
  });

  it("are listed with their phase, their goal and their best", async () => {
    open("/studies");
    const row = (await screen.findByRole("link", { name: "fashion-asha" })).closest("tr");
    if (row === null) throw new Error("no row");
    expect(within(row).getByText("running")).toBeTruthy();
    expect(within(row).getByText(/maximize test_accuracy/)).toBeTruthy();
    expect(within(row).getByText("75.00 %")).toBeTruthy();
  });

  it("do not look done where every trial failed", async () => {
    const trials = {
      limit: 9,
      created: 9,
      running: 0,
      waiting: 0,
      stopping: 0,
      completed: 0,
      stopped: 0,
      failed: 9,
      best: 0,
    };
    world.routes["GET /api/v1/studies"] = () =>
      page(
        study({ phase: "finished", trials }),
        study({ name: "other", phase: "finished", trials: { ...trials, failed: 8 } }),
      );
    open("/studies");
    expect((await screen.findByText("finished, all failed")).getAttribute("data-phase")).toBe("failed");
    expect(screen.getByText("finished").getAttribute("data-phase")).toBe("succeeded");
  });

  it("say how to begin where there is none", async () => {
    world.routes["GET /api/v1/studies"] = () => page();
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
    const objectives = [
      { metric: "test_accuracy", goal: "maximize" as const },
      { metric: "test_loss", goal: "minimize" as const },
    ];
    const document = { ...study().document, search: search({ objectives }) };
    world.routes["GET /api/v1/studies/study-1"] = () => json(study({ document }));
    world.routes["GET /api/v1/studies/study-1/trials"] = () =>
      page(trial(0, { rate: 0.01 }, [0.6, 0.4], { best: true }), trial(1, { rate: 0.1 }, [0.5, 0.5]));
    open("/studies/study-1");
    expect(await screen.findByRole("heading", { name: /Pareto front of 1.trial$/ })).toBeTruthy();
    expect(screen.getByRole("img", { name: /test_loss by test_accuracy of 2.trials, 1 of them/ })).toBeTruthy();
    expect(screen.getByText("Too few trials to tell")).toBeTruthy();
    expect(
      screen.getByRole("img", { name: /Parallel coordinates of 2.trials: rate \(log\), width, test_accuracy/ }),
    ).toBeTruthy();
  });

  it("say beside their document that they were extended", async () => {
    const plain = study();
    world.routes["GET /api/v1/studies/study-1"] = () =>
      json({ ...plain, trials: { ...plain.trials, limit: plain.document.search.trials + 2 } });
    open("/studies/study-1");
    expect(await screen.findByText(new RegExp(`extended since to ${plain.document.search.trials + 2}`))).toBeTruthy();
  });

  it("say why there is no trial", async () => {
    world.routes["GET /api/v1/studies/study-1"] = () => json(study({ phase: "paused" }));
    world.routes["GET /api/v1/studies/study-1/trials"] = () => page();
    open("/studies/study-1");
    expect(await screen.findByText("The study is paused; resume it to create trials.")).toBeTruthy();
  });

  it("show why the server refused a verb", async () => {
    world.routes["POST /api/v1/studies/study-1/pause"] = () =>
      problem(409, "Not possible now", "The study is closing.");
    open("/studies/study-1");
    fireEvent.click(await screen.findByRole("button", { name: "Pause" }));
    fireEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Pause" }));
    expect((await screen.findByRole("alert")).textContent).toContain("The study is closing.");
  });

  it("are extended by the number that was typed", async () => {
    let sent: unknown = null;
    world.routes["POST /api/v1/studies/study-1/extend"] = async (request) => {
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
    world.routes["POST /api/v1/studies"] = () =>
      refuse
        ? problem(422, "The study document is not valid", "x", [
            { field: "search.trials", value: "0", expected: "1 to 100000" },
          ])
        : json(study(), 201);
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
    const posts = world.asked.filter((request) => request.method === "POST");
    expect(posts.map((request) => request.headers.get("content-type"))).toEqual([
      "application/yaml",
      "application/yaml",
    ]);
    expect(posts[0]?.headers.get("idempotency-key")).toBe(posts[1]?.headers.get("idempotency-key"));
  });

  it("say from which trial one took over, and hand out the file of all", async () => {
    world.routes["GET /api/v1/studies/study-1/trials"] = () =>
      page(trial(0, { rate: 0.01 }, 0.6), trial(1, { rate: 0.1 }, 0.7, { from: { trial: 0, step: 1 } }));
    world.routes["GET /api/v1/studies/study-1/export"] = () =>
      new Response("number,state\n", { headers: { "content-type": "text/csv" } });
    const saved = vi.fn(() => "blob:x");
    vi.stubGlobal("URL", Object.assign(URL, { createObjectURL: saved, revokeObjectURL: () => undefined }));
    open("/studies/study-1");
    expect((await screen.findByText("from 0")).title).toMatch(/^It took over trial 0 as it was after 1.epoch$/);
    fireEvent.click(screen.getByRole("button", { name: "Export" }));
    await waitFor(() => expect(saved).toHaveBeenCalledTimes(1));
  });

  it("hand out the best trial's model, and lead to a job that continues any", async () => {
    const checkpoint = {
      step: 234,
      epoch: 1,
      revision: 1,
      path: "x/step-234",
      bytes: 1000,
      manifest_sha256: "0",
      files: ["manifest.json", "model.safetensors"],
    };
    const job = { engine: { batch: 64 } } as unknown as Record<string, never>;
    world.routes["GET /api/v1/studies/study-1"] = () => json(study({ document: { ...study().document, job } }));
    world.routes["GET /api/v1/studies/study-1/best"] = () => page({ trial: trials[1], checkpoint, model_path: null });
    world.routes["GET /api/v1/jobs/job-1/checkpoints/234/files/model.safetensors"] = () => new Response("x");
    const saved = vi.fn(() => "blob:x");
    vi.stubGlobal("URL", Object.assign(URL, { createObjectURL: saved, revokeObjectURL: () => undefined }));
    open("/studies/study-1");
    fireEvent.click(await screen.findByRole("button", { name: "Model" }));
    await waitFor(() => expect(saved).toHaveBeenCalledTimes(1));
    expect(screen.getByRole("link", { name: "Continue as a job" }).getAttribute("href")).toBe(
      "/submit?from=job-1&step=234",
    );
    expect(screen.getByRole("link", { name: "All checkpoints" }).getAttribute("href")).toBe(
      "/jobs/job-1?tab=checkpoints",
    );
    const table = within(await screen.findByRole("table", { name: "Trials" }));
    expect(table.getByRole("link", { name: "Continue trial 0 as a job" }).getAttribute("href")).toBe(
      "/submit?from=job-0",
    );
    // The trial has no measurement, so it has no checkpoint.
    expect(table.queryByRole("link", { name: "Continue trial 2 as a job" })).toBeNull();
  });

  it("of commands lead to no job: only the command can read its checkpoints", async () => {
    const command = { command: { argv: ["true"] } } as unknown as Record<string, never>;
    world.routes["GET /api/v1/studies/study-1"] = () =>
      json(study({ document: { ...study().document, job: command } }));
    open("/studies/study-1");
    await screen.findByRole("table", { name: "Trials" });
    expect(screen.queryByRole("link", { name: /^Continue/ })).toBeNull();
  });

  it("are one click from the jobs of their trials", async () => {
    world.routes["GET /api/v1/jobs/job-1"] = () =>
      json(job({ trial: { study_id: "study-1", number: 4, state: "waiting" } }));
    open("/jobs/job-1");
    expect(
      (await screen.findByRole("link", { name: "trial 4 of its study, between rungs" })).getAttribute("href"),
    ).toBe("/studies/study-1");
  });

  it("are shown while their pages come, with how many there are", async () => {
    const created = study().trials;
    world.routes["GET /api/v1/studies/study-1"] = () => json(study({ trials: { ...created, created: 3 } }));
    let answer: (response: Response) => void = () => undefined;
    world.routes["GET /api/v1/studies/study-1/trials"] = (request) =>
      new URL(request.url).searchParams.has("continue")
        ? new Promise<Response>((resolve) => (answer = resolve))
        : json({ items: trials.slice(0, 1), continue: "0" });
    open("/studies/study-1");
    expect(await screen.findByText(/^Showing 1 of 3.trials; the others are being loaded\.$/)).toBeTruthy();
    expect(numbers()).toEqual([0]);
    expect(screen.getByRole("progressbar", { name: "Trials loaded" }).getAttribute("value")).toBe("1");
    await waitFor(() => expect(world.asked.some((request) => request.url.includes("continue=0"))).toBe(true));
    answer(page(...trials.slice(1)));
    expect(await screen.findByText(/^Showing 3 of 3.trials\.$/)).toBeTruthy();
    expect(numbers()).toEqual([1, 0, 2]);
  });

  it("say how many are shown when the others cannot be loaded", async () => {
    const created = study().trials;
    world.routes["GET /api/v1/studies/study-1"] = () => json(study({ trials: { ...created, created: 3 } }));
    world.routes["GET /api/v1/studies/study-1/trials"] = (request) =>
      new URL(request.url).searchParams.has("continue")
        ? problem(503, "Not now", "The database is away.")
        : json({ items: trials.slice(0, 1), continue: "0" });
    open("/studies/study-1");
    expect((await screen.findByRole("alert")).textContent).toContain("The database is away.");
    expect(screen.getByText(/^Showing 1 of 3.trials\.$/)).toBeTruthy();
  });
});

describe("the contour plot", () => {
  const many = Array.from({ length: 12 }, (_, number) =>
    trial(
      number,
      { rate: 0.001 * 1.4 ** number, width: 32 + number * 30, kind: number % 2 === 0 ? "sgd" : "adam" },
      number / 12,
    ),
  );
  const parameters = [...search().parameters, { name: "kind", type: "categorical" as const, choices: ["sgd", "adam"] }];
  const panel = async () => within(await screen.findByRole("region", { name: "test_accuracy by two parameters" }));

  beforeEach(() => {
    world.routes["GET /api/v1/studies/study-1"] = () =>
      json(study({ document: { ...study().document, search: search({ parameters }) } }));
    world.routes["GET /api/v1/studies/study-1/trials"] = () => page(...many);
    world.routes["GET /api/v1/studies/study-1/best"] = () => page();
  });

  it("shows two parameters that a reader chooses, and never one against itself", async () => {
    open("/studies/study-1");
    const plot = await panel();
    expect(
      plot.getByRole("img", {
        name: /12.trials by rate, across, and width, upwards: the best, trial 11, has 91\.67.% at 0\.04\d+ and 362$/,
      }),
    ).toBeTruthy();
    expect(plot.getByText(/Smoothed over 12.trials by rank, after 1.epoch; rate on a log axis/)).toBeTruthy();
    expect(plot.getByRole("group", { name: "Colours of test_accuracy" })).toBeTruthy();
    fireEvent.change(plot.getByRole("combobox", { name: "Up" }), { target: { value: "2" } });
    expect(plot.getByRole("img", { name: /by rate, across, and kind, upwards/ })).toBeTruthy();
    fireEvent.change(plot.getByRole("combobox", { name: "Across" }), { target: { value: "2" } });
    expect(plot.getByRole("img", { name: /by kind, across, and rate, upwards/ })).toBeTruthy();
  });

  it("says how many trials it lacks", async () => {
    world.routes["GET /api/v1/studies/study-1/trials"] = () => page(...many.slice(0, 4));
    open("/studies/study-1");
    expect((await panel()).getByText("4 of at least 6 have a value, rate and width.")).toBeTruthy();
  });
});

describe("what is deleted while its page is open", () => {
  beforeEach(() => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
  });
  afterEach(() => {
    vi.useRealTimers();
  });
  const asks = (path: string) => world.asked.filter((request) => new URL(request.url).pathname.startsWith(path)).length;

  it("is a study that says so, and is asked for no more", async () => {
    world.routes["GET /api/v1/studies/study-1"] = () => json(study());
    world.routes["GET /api/v1/studies/study-1/trials"] = () => page(trial(0, { rate: 0.01 }, 0.6));
    world.routes["GET /api/v1/studies/study-1/best"] = () => page();
    open("/studies/study-1");
    await screen.findByRole("table", { name: "Trials" });
    const before = asks("/api/v1/studies/study-1");
    await act(() => vi.advanceTimersByTimeAsync(7000));
    expect(asks("/api/v1/studies/study-1")).toBeGreaterThan(before);
    for (const path of ["", "/trials", "/best"])
      world.routes[`GET /api/v1/studies/study-1${path}`] = () => problem(404, "There is no such thing");
    await act(() => vi.advanceTimersByTimeAsync(4000));
    expect(screen.getByText("The study was deleted")).toBeTruthy();
    const after = asks("/api/v1/studies/study-1");
    await act(() => vi.advanceTimersByTimeAsync(120_000));
    expect(asks("/api/v1/studies/study-1")).toBe(after);
  });

  it("is a job that says so, and is asked for no more", async () => {
    world.routes["GET /api/v1/jobs/job-1"] = () => json(job());
    open("/jobs/job-1");
    await screen.findByRole("heading", { name: "fashion-cnn" });
    const before = asks("/api/v1/jobs/job-1");
    await act(() => vi.advanceTimersByTimeAsync(11_000));
    expect(asks("/api/v1/jobs/job-1")).toBeGreaterThan(before);
    world.routes["GET /api/v1/jobs/job-1"] = () => problem(404, "There is no such thing");
    await act(() => vi.advanceTimersByTimeAsync(11_000));
    expect(screen.getByText("The job was deleted")).toBeTruthy();
    const after = asks("/api/v1/jobs/job-1");
    await act(() => vi.advanceTimersByTimeAsync(120_000));
    expect(asks("/api/v1/jobs/job-1")).toBe(after);
  });
});
