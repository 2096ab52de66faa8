// Parser of server-sent events, because the browser's EventSource cannot send an Authorization
// header. Follows the event stream interpretation of the WHATWG HTML standard, section 9.2.6.

export interface SseMessage {
  /** `message` unless the server names another kind. */
  event: string;
  data: string;
  /** Last id seen on the stream; it may be older than this message. */
  id: string | null;
}

export class SseParser {
  private buffer = "";
  private event = "";
  private data: string[] = [];
  private fresh = true;
  private pendingCr = false;
  id: string | null = null;
  /** Reconnection time that the server requested with `retry:`. */
  retryMs: number | null = null;

  /** Takes a piece of the stream, split anywhere, and returns the messages that it completes. */
  push(chunk: string): SseMessage[] {
    let text = this.fresh && chunk.startsWith("\uFEFF") ? chunk.slice(1) : chunk;
    if (chunk !== "") this.fresh = false;
    // A CRLF may be split: an LF after a CR at the end of the last piece is not a second line end.
    if (this.pendingCr && text.startsWith("\n")) text = text.slice(1);
    if (text !== "") this.pendingCr = text.endsWith("\r");
    this.buffer += text;
    const lines = this.buffer.split(/\r\n|\n|\r/);
    this.buffer = lines.pop() ?? "";
    return lines.flatMap((line) => this.line(line));
  }

  private line(line: string): SseMessage[] {
    if (line === "") return this.dispatch();
    if (line.startsWith(":")) return [];
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const raw = colon < 0 ? "" : line.slice(colon + 1);
    const value = raw.startsWith(" ") ? raw.slice(1) : raw;
    if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id" && !value.includes("\0")) this.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return [];
  }

  private dispatch(): SseMessage[] {
    const { event, data } = this;
    this.event = "";
    this.data = [];
    return data.length === 0 ? [] : [{ event: event || "message", data: data.join("\n"), id: this.id }];
  }
}
