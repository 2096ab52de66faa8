import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Boundary } from "./boundary";

beforeEach(() => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
});
afterEach(cleanup);

function Broken({ text }: { text: string }): never {
  throw new Error(text);
}

it("says what failed and that jobs go on, until the reader goes elsewhere", () => {
  const { rerender } = render(
    <Boundary place="/studies">
      <Broken text="x is undefined" />
    </Boundary>,
  );
  expect(screen.getByRole("alert").textContent).toContain(
    "x is undefined. It is a mistake in the page, not in your jobs, which continue.",
  );
  expect(screen.getByRole("button", { name: "Try again" })).toBeTruthy();
  rerender(
    <Boundary place="/jobs">
      <p>jobs</p>
    </Boundary>,
  );
  expect(screen.getByText("jobs")).toBeTruthy();
  rerender(
    <Boundary place="/studies">
      <p>studies</p>
    </Boundary>,
  );
  expect(screen.getByText("studies")).toBeTruthy();
});

it("says that the server may be newer where a part of the page is not there", () => {
  render(
    <Boundary place="/studies">
      <Broken text="Failed to fetch dynamically imported module: /assets/page-1234.js" />
    </Boundary>,
  );
  expect(screen.getByRole("alert").textContent).toContain("loading it again brings the new one");
});
