import { describe, expect, it } from "vitest";
import type { MusterEvent, TaskView } from "../api/types";
import { at, job, stored } from "../live/test-data";
import { lineOf, toYaml } from "./document";
import { dataText, modelText } from "./engine";
import { detailLine, tone } from "./event";
import type { Tone } from "./event";
import { bytes, count, loss, percent, plural } from "./number";
import { resizeSentence } from "./resize";
import { age, duration } from "./time";

describe("numbers", () => {
  it("groups digits without touching short numbers", () => {
    expect([0, 999, 1000, 46870, 1234567].map(count)).toEqual([
      "0",
      "999",
      "1\u202F000",
      "46\u202F870",
      "1\u202F234\u202F567",
    ]);
  });

  it("shows a loss with the digits that matter and leaves divergence visible", () => {
    expect([0.28412, 12.3456, 431.27, 0.00001234, 2_500_000, 0].map(loss)).toEqual([
      "0.2841",
      "12.35",
      "431.3",
      "1.23e-5",
      "2.50e+6",
      "0.0000",
    ]);
    expect(loss(Infinity)).toBe("Infinity");
    expect(loss(null)).toBe("–");
  });

  it("does not round nearly all up to all", () => {
    expect(percent(0.9994, 2)).toBe("99.94\u202F%");
    expect(percent(undefined)).toBe("–");
  });

  it("changes units of bytes at powers of 1024", () => {
    expect([0, 1023, 1024, 1_843_200, 150_323_855_360].map(bytes)).toEqual([
      "0\u202FB",
      "1023\u202FB",
      "1.0\u202FKiB",
      "1.8\u202FMiB",
      "140\u202FGiB",
    ]);
  });

  it("knows one from many", () => {
    expect(plural(1, "GPU")).toBe("1\u00A0GPU");
    expect(plural(2, "job holds", "jobs hold")).toBe("2\u00A0jobs hold");
  });
});

describe("times", () => {
  it("gives at most two units, and drops a zero one", () => {
    expect([0, 59.6, 60, 190, 7500, 7200, 360_000].map(duration)).toEqual([
      "0s",
      "1m",
      "1m",
      "3m\u202F10s",
      "2h\u202F5m",
      "2h",
      "4d\u202F4h",
    ]);
    expect(duration(null)).toBe("–");
    expect(duration(Infinity)).toBe("–");
  });

  it("never shows a negative age when clocks differ", () => {
    const now = Date.parse("2026-01-01T00:00:00Z");
    expect(age("2026-01-01T00:00:05Z", now)).toBe("0s");
    expect(age("2025-12-31T22:59:00Z", now)).toBe("1h");
  });
});

describe("events", () => {
  const task = { task_id: "t", role: { kind: "ps_shard", index: 1 }, node_id: "n" } as const;

  it.each<[MusterEvent, Tone]>([
    [{ kind: "job_placed", revision: 2, workers: 4, ps_shards: 1, nodes: ["a", "b", "a"], why: "w" }, "info"],
    [{ kind: "job_stop_requested", then: { kind: "requeue", cause: "preempted" }, why: "w" }, "warn"],
    [
      { kind: "task_state_changed", ...task, state: { phase: "released", outcome: { kind: "signalled", signal: 9 } } },
      "bad",
    ],
    [
      { kind: "task_state_changed", ...task, state: { phase: "released", outcome: { kind: "exited", code: 0 } } },
      "quiet",
    ],
    [
      {
        kind: "task_state_changed",
        ...task,
        state: { phase: "released", outcome: { kind: "stopped", killed: true, driver: "restore: 999" } },
      },
      "bad",
    ],
    [{ kind: "job_state_changed", revision: 1, state: { phase: "failed", reason: "r" } }, "bad"],
    [{ kind: "job_state_changed", revision: 1, state: { phase: "queued" } }, "quiet"],
    [{ kind: "node_state_changed", name: "n1", state: "lost" }, "bad"],
    [{ kind: "resumed", from_step: 1200 }, "good"],
    [{ kind: "peer_gone", task_id: "t", step: 70 }, "warn"],
  ])("%o", (event, severity) => {
    expect(tone(event)).toBe(severity);
  });

  it("begins a line of its own with a capital letter", () => {
    const note = stored(1, { kind: "note", message: "n" });
    expect(detailLine({ ...note, detail: "its time slice has expired" })).toBe("Its time slice has expired");
    expect(detailLine({ ...note, detail: "worker-0 exited with code 3" })).toBe("worker-0 exited with code 3");
    expect(detailLine({ ...note, detail: null })).toBeNull();
  });
});

describe("what a job trains", () => {
  it.each([
    [{ kind: "mlp", hidden: [256, 128] }, "mlp 256-128"],
    [{ kind: "mlp", hidden: [] }, "mlp"],
    [{ kind: "cnn", channels: [16, 32], dense: [64] }, "cnn 16-32-64"],
    [{ kind: "resnet", depth: 18 }, "resnet 18"],
    [{ kind: "gpt", width: 768, blocks: 12, heads: 12 }, "gpt 12 × 768"],
    [{ kind: "layers", layers: [{ kind: "flatten" }, { kind: "dense", width: 3 }] }, "2 layers"],
    [{ kind: "what comes next year", depth: { a: 1 } }, "what comes next year"],
    [null, "?"],
  ])("%j", (model, expected) => {
    expect(modelText(model)).toBe(expected);
  });

  it("names known data and the paths of files", () => {
    expect(dataText({ name: "fashion-mnist", train_limit: 5 })).toBe("fashion-mnist");
    expect(dataText({ kind: "text", path: "books/one.txt", length: 64 })).toBe("books/one.txt (text)");
    expect(dataText(undefined)).toBe("?");
  });

  it("writes nested layers so that YAML reads them back", () => {
    const residual = { kind: "residual", layers: [{ kind: "conv", channels: 4, kernel: [3, 1] }], relu: true };
    expect(toYaml({ engine: { model: { kind: "layers", layers: [residual] } } })).toContain(
      "layers: [{ kind: residual, layers: [{ kind: conv, channels: 4, kernel: [3, 1] }], relu: true }]",
    );
  });
});

describe("job documents", () => {
  it("writes leaves inline, quotes what YAML would read as something else, leaves nulls out", () => {
    const text = toYaml({
      version: "muster/v1",
      labels: { example: "true", n: "12" },
      engine: { model: { kind: "cnn", channels: [16, 32] }, seed: 7, dataset: null },
      stop: {},
    });
    expect(text).toBe(
      [
        "version: muster/v1",
        "labels:",
        '  example: "true"',
        '  "n": "12"',
        "engine:",
        "  model: { kind: cnn, channels: [16, 32] }",
        "  seed: 7",
        "stop: {}",
        "",
      ].join("\n"),
    );
  });

  it("gives each of many parts a line of its own", () => {
    const rate = { name: "rate", field: "engine.optimizer.learning_rate", low: 0.001 };
    expect(toYaml({ search: { parameters: [rate, { name: "width" }], objectives: [{ metric: "loss" }] } })).toBe(
      [
        "search:",
        "  parameters:",
        "    - { name: rate, field: engine.optimizer.learning_rate, low: 0.001 }",
        "    - { name: width }",
        "  objectives: [{ metric: loss }]",
        "",
      ].join("\n"),
    );
  });

  const document = [
    "version: muster/v1",
    "# batch: in a comment",
    "engine:",
    "  batch: 0",
    "scale:",
    "  workers: { min: 9, max: 4 }",
    "  ps_shards:",
    "    min: 3",
    "stop: {}",
  ].join("\n");

  it.each([
    ["engine.batch", 3],
    ["scale.workers.min", 5],
    ["scale.ps_shards.min", 7],
    ["scale.ps_shards.max", 6],
    ["stop", 8],
    ["retries", null],
  ])("finds the line of %s", (path, line) => {
    expect(lineOf(document, path)).toBe(line);
  });
});

describe("a resize in place", () => {
  const task = (
    rank: number,
    revision: number,
    phase: "assigned" | "running" | "stopping",
    kind: "worker" | "ps_shard" = "worker",
  ): TaskView => ({
    id: `${kind}-${rank}-${revision}`,
    job_id: "job-1",
    revision,
    name: `${kind}-${rank}`,
    role: kind === "worker" ? { kind, rank } : { kind, index: rank },
    state: { phase },
    node: "node-a",
    node_id: "node-1",
    gpus: [rank],
    address: null,
    created_at: at(0),
    released_at: null,
    outcome: null,
  });

  it("says who comes and who goes, and nothing once all have", () => {
    const now = job({ revision: 2 });
    const coming = [
      task(0, 2, "running"),
      task(1, 2, "assigned"),
      task(2, 2, "assigned"),
      task(1, 1, "stopping", "ps_shard"),
    ];
    expect(resizeSentence(now, coming)).toBe(
      "Resizing: 2\u00A0workers join, 1\u00A0PS shard leaves. The others continue.",
    );
    const gone = { ...task(1, 1, "stopping"), released_at: at(9) };
    expect(resizeSentence(now, [task(0, 2, "running"), gone])).toBeNull();
    expect(resizeSentence(job({ phase: "starting", revision: 2 }), coming)).toBeNull();
  });
});
