// The end of a task's log, and its new output.
import { useEffect, useState } from "react";
import { logTail } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import { logPart } from "../../live/messages";
import { openStream } from "../../live/stream";

export interface LogState {
  text: string;
  loading: boolean;
  /** Whether the log has earlier text that is not shown. */
  cut: boolean;
  error: ApiError | null;
}

/** Maximum length, because a page may follow a task for hours. */
const KEPT_CHARS = 2_000_000;

export function useLog(jobId: string, taskId: string, tailBytes: number): LogState {
  const [state, setState] = useState<LogState>({ text: "", loading: true, cut: false, error: null });
  useEffect(() => {
    const stop = new AbortController();
    let close: (() => void) | undefined;
    logTail(jobId, taskId, tailBytes, stop.signal).then(
      ({ text, offset, nextOffset }) => {
        setState({ text, loading: false, cut: offset > 0, error: null });
        const query = new URLSearchParams({ task: taskId, offset: String(nextOffset) });
        if (stop.signal.aborted) return;
        close = openStream(`/api/v1/jobs/${jobId}/logs/stream?${query.toString()}`, {
          onMessage: (message) => {
            const part = logPart(message);
            if (part !== null) setState((before) => ({ ...before, text: kept(before.text + part) }));
          },
        });
      },
      (thrown: unknown) => {
        if (!stop.signal.aborted) setState((before) => ({ ...before, loading: false, error: fromThrown(thrown) }));
      },
    );
    return () => {
      stop.abort();
      close?.();
    };
  }, [jobId, taskId, tailBytes]);
  return state;
}

function kept(text: string): string {
  return text.length <= KEPT_CHARS ? text : text.slice(text.indexOf("\n", text.length - KEPT_CHARS / 2) + 1);
}
