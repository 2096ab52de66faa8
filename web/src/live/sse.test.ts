import { describe, expect, it } from "vitest";
import { SseParser } from "./sse";

const STREAM = [
  "\uFEFFevent: opened\r\nid: 1-1\r\ndata: {}\r\n\r\n",
  ": alive\n\n",
  "data: one\ndata: two\n\n",
  "event:x\rid:\rdata\r\r",
  "retry: 1500\ndata: last\n\n",
].join("");
const MESSAGES = [
  { event: "opened", data: "{}", id: "1-1" },
  { event: "message", data: "one\ntwo", id: "1-1" },
  { event: "x", data: "", id: "" },
  { event: "message", data: "last", id: "" },
];

describe("the parser of event streams", () => {
  it("reads every form of line end, comments, many data lines and empty fields", () => {
    const parser = new SseParser();
    expect(parser.push(STREAM)).toEqual(MESSAGES);
    expect(parser.retryMs).toBe(1500);
  });

  it("gives the same wherever the stream is cut", () => {
    for (let cut = 1; cut < STREAM.length; cut += 1) {
      const parser = new SseParser();
      expect([...parser.push(STREAM.slice(0, cut)), ...parser.push(STREAM.slice(cut))]).toEqual(MESSAGES);
    }
    const slow = new SseParser();
    expect(Array.from(STREAM).flatMap((letter) => slow.push(letter))).toEqual(MESSAGES);
  });

  it("does not give a message that was not ended", () => {
    expect(new SseParser().push("data: half\n")).toEqual([]);
  });
});
