// A template of the tenant on the page to submit a job.
import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { at, job } from "../../live/test-data";
import { json, newWorld, open, page } from "../test-world";

const world = newWorld();

const template = {
  name: "train",
  document: {
    description: "Trains the model",
    parameters: [
      { name: "lr", type: "float", default: 0.1 },
      { name: "size", type: "string", choices: ["small", "large"] },
      { name: "tag", type: "string" },
      { name: "fast", type: "bool", default: false },
    ],
    job: {},
  },
  version: 1,
  created_at: at(0),
  updated_at: at(0),
  updated_by: { user: "ada" },
};

describe("a template on the page to submit", () => {
  it("sends typed values, and puts the filled document into the editor", async () => {
    world.routes["GET /api/v1/templates"] = () => page(template);
    const filled = job();
    filled.spec.name = "train-large";
    world.routes["POST /api/v1/templates/train/submit"] = () => json(filled);
    open("/submit");
    fireEvent.change(await screen.findByLabelText("Template of the tenant"), { target: { value: "train" } });
    fireEvent.change(screen.getByLabelText("lr"), { target: { value: "0.01" } });
    fireEvent.change(screen.getByLabelText("size"), { target: { value: "large" } });
    fireEvent.change(screen.getByLabelText("tag"), { target: { value: "01" } });
    fireEvent.click(screen.getByRole("button", { name: "Fill the document" }));
    const editor = () => screen.getByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    await waitFor(() => expect(editor().value).toContain("name: train-large"));
    const sent = world.asked.find((request) => request.url.includes("/templates/train/submit"));
    expect(sent?.url).toContain("dry_run=true");
    expect(await sent?.json()).toEqual({ parameters: { lr: 0.01, size: "large", tag: "01" } });
    // The form keeps what was chosen.
    expect((await screen.findByLabelText<HTMLInputElement>("lr")).value).toBe("0.01");
  });

  it("shows no form without templates", async () => {
    world.routes["GET /api/v1/templates"] = () => page();
    open("/submit");
    expect(await screen.findByLabelText("Job document, YAML or JSON")).toBeTruthy();
    expect(screen.queryByText("From a template")).toBeNull();
  });
});
