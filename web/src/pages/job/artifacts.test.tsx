import { fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open, page } from "../test-world";
import { table } from "./artifact-preview";

const world = newWorld();

const artifact = (path: string, content_type: string, bytes = 7) => ({
  path,
  content_type,
  bytes,
  sha256: path,
  role: { kind: "worker", rank: 0 },
  revision: 1,
  stored_at: "2026-01-01T00:00:00Z",
});
let asked: string[] = [];

beforeEach(() => {
  asked = [];
  world.routes["GET /api/v1/jobs/job-1"] = () => json(job());
  world.routes["GET /api/v1/jobs/job-1/artifacts"] = () =>
    page(
      artifact("curve.csv", "text/csv"),
      artifact("plots/page.html", "text/html"),
      artifact("weights.bin", "application/octet-stream", 1 << 20),
    );
  world.routes["GET /api/v1/jobs/job-1/artifacts/content"] = (request: Request) => {
    const query = new URL(request.url).searchParams;
    asked.push(`${query.get("path")} ${query.get("first_bytes")}`);
    return new Response(query.get("path") === "curve.csv" ? "a,b\n1,2\n" : "<script>alert(1)</script>");
  };
});

describe("the artifacts of a job", () => {
  it("are listed and filtered", async () => {
    open("/jobs/job-1?tab=artifacts");
    expect(await screen.findByText("weights.bin")).toBeTruthy();
    fireEvent.change(screen.getByRole("searchbox"), { target: { value: "plots/" } });
    await waitFor(() => expect(screen.queryByText("weights.bin")).toBeNull());
    expect(screen.getByText("plots/page.html")).toBeTruthy();
  });

  it("are loaded together", async () => {
    let loaded = 0;
    URL.createObjectURL = () => "blob:all";
    URL.revokeObjectURL = () => undefined;
    world.routes["GET /api/v1/jobs/job-1/artifacts/archive"] = () => {
      loaded += 1;
      return new Response("tar");
    };
    open("/jobs/job-1?tab=artifacts");
    fireEvent.click(await screen.findByRole("button", { name: "Download all" }));
    await waitFor(() => expect(loaded).toBe(1));
  });

  it("are not loaded together if they are too large", async () => {
    world.routes["GET /api/v1/jobs/job-1/artifacts"] = () =>
      page(artifact("weights.bin", "application/octet-stream", 3 * 1024 ** 3));
    open("/jobs/job-1?tab=artifacts");
    expect(await screen.findByText(/^muster artifacts .* --download .*\.tar$/)).toBeTruthy();
    expect(screen.queryByRole("button", { name: "Download all" })).toBeNull();
  });

  it("show a table for CSV, of its beginning", async () => {
    open("/jobs/job-1?tab=artifacts");
    fireEvent.click(await screen.findByText("curve.csv"));
    expect(await screen.findByRole("columnheader", { name: "b" })).toBeTruthy();
    expect(asked).toEqual(["curve.csv 65536"]);
  });

  it("show HTML only in a frame without rights", async () => {
    open("/jobs/job-1?tab=artifacts");
    fireEvent.click(await screen.findByText("plots/page.html"));
    const frame = await screen.findByTitle("HTML without scripts");
    expect(frame.getAttribute("sandbox")).toBe("");
    expect(document.querySelector("#tab-panel script")).toBeNull();
  });

  it("are explained where there are none", async () => {
    world.routes["GET /api/v1/jobs/job-1/artifacts"] = () => page();
    open("/jobs/job-1?tab=artifacts");
    expect(await screen.findByText("No artifacts yet")).toBeTruthy();
  });
});

describe("a CSV file", () => {
  it("without its cut line is a table, with quotes it is not", () => {
    expect(table("a,b\n1,2\n3", false)).toEqual([
      ["a", "b"],
      ["1", "2"],
    ]);
    expect(table('a,b\n"1",2\n', true)).toBeNull();
    expect(table("a,b\n1\n", true)).toBeNull();
  });
});
