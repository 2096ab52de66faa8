// A node's card shows GPUs that pods outside Muster hold, and a speed that deviates.
import { cleanup, render, screen } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { afterEach, describe, expect, it } from "vitest";
import type { NodeView } from "../../api/types";
import { node } from "../../live/test-data";
import { NodeCard } from "./card";

function shown(notice: NodeView["notice"]) {
  render(
    <MemoryRouter>
      <NodeCard node={node("node-a", [null, null, "job"], { notice })} colours={new Map()} onDrain={null} />
    </MemoryRouter>,
  );
}

afterEach(cleanup);

describe("the speed of a node", () => {
  it.each([
    [{ percent: 91, jobs: 14 }, "Speed 91 % of its kind"],
    [undefined, null],
  ])("is shown where it deviates", (speed, text) => {
    const change = speed === undefined ? {} : { speed };
    render(
      <MemoryRouter>
        <NodeCard node={node("node-a", [null], change)} colours={new Map()} onDrain={null} />
      </MemoryRouter>,
    );
    expect(screen.queryByText(/of its kind/)?.textContent ?? null).toBe(text);
  });
});

describe("the images of a node", () => {
  it.each([
    [{ kind: "able" } as const, "Tasks can run in images"],
    [{ kind: "unable", why: "no right to mount" } as const, "Tasks cannot run in images: no right to mount"],
    [null, null],
  ])("are told where tasks are processes", (images, text) => {
    const plain = node("node-a", [null]);
    render(
      <MemoryRouter>
        <NodeCard node={{ ...plain, capacity: { ...plain.capacity, images } }} colours={new Map()} onDrain={null} />
      </MemoryRouter>,
    );
    expect(screen.queryByText(/run in images/)?.textContent ?? null).toBe(text);
  });
});

describe("a node beside others", () => {
  const why = "2 nvidia.com/mig-1g.10gb held by a pod that is not Muster's";

  it("tells how many of its GPUs are theirs, and stays up", () => {
    shown({ closed: "open", taken: 2, why });
    expect(screen.getByText(`2 of 3 GPUs not Muster's: ${why}`)).toBeTruthy();
    expect(screen.getByText("up")).toBeTruthy();
  });

  it("tells why it is closed once", () => {
    shown({ closed: "to_new", taken: 2, why: "cordoned in Kubernetes" });
    expect(screen.getByText("2 of 3 GPUs not Muster's")).toBeTruthy();
    expect(screen.getByText("Closed by its cluster: cordoned in Kubernetes")).toBeTruthy();
  });

  it("says nothing of it where nothing is theirs", () => {
    shown({ closed: "open" });
    expect(screen.queryByText(/not Muster's/)).toBeNull();
  });
});
