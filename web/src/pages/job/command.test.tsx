import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Command } from "./command";

const calls = vi.hoisted(() => ({ codeArchive: vi.fn() }));
vi.mock("../../api/calls", () => calls);
const saving = vi.hoisted(() => ({ save: vi.fn() }));
vi.mock("../../ui/save", () => saving);

afterEach(cleanup);

const argv = ["python3", "train.py"];

test("code of a program is downloaded under the job's name", async () => {
  const blob = new Blob(["tar"]);
  calls.codeArchive.mockResolvedValue(blob);
  render(<Command name="train" command={{ argv, code: { archive: "ab" } }} />);
  fireEvent.click(screen.getByRole("button", { name: "code" }));
  expect(calls.codeArchive).toHaveBeenCalledWith("ab");
  await waitFor(() => expect(saving.save).toHaveBeenCalledWith(blob, "train-code.tar.zst"));
});

test("program without code has no button for it", () => {
  render(<Command name="train" command={{ argv }} />);
  expect(screen.queryByRole("button", { name: "code" })).toBeNull();
});

test("commit of a program is shown by its beginning", () => {
  const commit = "0c1f2a9b3d4e5f60718293a4b5c6d7e8f9012345";
  render(<Command name="train" command={{ argv, git: { url: "https://host/a", commit } }} />);
  expect(screen.getByText("0c1f2a9b3d4e").title).toBe(`Commit ${commit} of https://host/a`);
});
