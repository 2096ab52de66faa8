// The page of secrets: names only, storing and deleting.
import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { at } from "../../live/test-data";
import { json, newWorld, open, page } from "../test-world";

const world = newWorld();

const secret = (name: string, jobs = 0) => ({
  name,
  version: 2,
  created_at: at(0),
  updated_at: at(0),
  updated_by: { user: "ada" },
  open_jobs: jobs,
  open_studies: 0,
});

const asked = (method: string) => world.asked.filter((request) => request.method === method);

describe("the page of secrets", () => {
  it("stores a value, and forgets what was typed", async () => {
    world.routes["GET /api/v1/secrets"] = () => page(secret("HF_TOKEN"));
    world.routes["PUT /api/v1/secrets/HF_TOKEN"] = () => json(secret("HF_TOKEN"));
    open("/secrets");
    fireEvent.change(await screen.findByLabelText("Name"), { target: { value: "HF_TOKEN" } });
    const value = screen.getByLabelText<HTMLTextAreaElement>("Value");
    fireEvent.change(value, { target: { value: "-----BEGIN KEY-----\ns3cret\n" } });
    fireEvent.click(screen.getByRole("button", { name: "Replace" }));
    await waitFor(() => expect(value.value).toBe(""));
    expect(await asked("PUT")[0]?.json()).toEqual({ value: "-----BEGIN KEY-----\ns3cret\n" });
  });

  it("asks before it deletes, and says who uses it", async () => {
    world.routes["GET /api/v1/secrets"] = () => page(secret("HF_TOKEN", 3));
    world.routes["DELETE /api/v1/secrets/HF_TOKEN"] = () => new Response(null, { status: 204 });
    open("/secrets");
    fireEvent.click(await screen.findByRole("button", { name: "Delete HF_TOKEN" }));
    expect((await screen.findByRole("dialog")).textContent).toMatch(/3.open jobs name it/);
    expect(asked("DELETE")).toEqual([]);
    fireEvent.click(screen.getByRole("button", { name: "Delete it" }));
    await waitFor(() => expect(asked("DELETE")).toHaveLength(1));
    expect(asked("DELETE")[0]?.url).toContain("force=true");
  });
});
