import { expect, it } from "vitest";
import { plain, spans, terminalLines } from "./terminal";

it("keeps what a progress bar shows last", () => {
  expect(terminalLines("10 %\r50 %\r90 %\ndone\r\n")).toEqual(["90 %", "done"]);
  expect(terminalLines("90 %\r")).toEqual(["90 %"]);
  expect(terminalLines("a\n\nb")).toEqual(["a", "", "b"]);
});

it("splits a line by its colours", () => {
  expect(spans("a\u001b[1;31mred\u001b[0m b")).toEqual([
    { text: "a", colour: null, bold: false },
    { text: "red", colour: 1, bold: true },
    { text: " b", colour: null, bold: false },
  ]);
  // The parameters of a colour of the 256 are no codes of their own.
  expect(spans("\u001b[38;5;31mx")).toEqual([{ text: "x", colour: null, bold: false }]);
});

it("leaves out other escape sequences", () => {
  expect(plain("\u001b]0;title\u0007\u001b[2K\u001b[?25lshown\u001b[1A")).toBe("shown");
  expect(spans("\u001b[2Kx")).toEqual([{ text: "x", colour: null, bold: false }]);
});
