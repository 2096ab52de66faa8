// A value of the API in a component's state. It is loaded when its key changes, and updated by live
// events in between.
import { useCallback, useEffect, useRef, useState } from "react";
import { fromThrown, type ApiError } from "./problem";

export interface Resource<T> {
  data: T | null;
  error: ApiError | null;
  loading: boolean;
  /** Loads again and keeps the present value meanwhile. Calls in short succession become one. */
  reload: () => void;
  /** Changes the shown value, for example by an event. */
  update: (change: (data: T) => T) => void;
}

const COALESCE_MS = 300;

interface State<T> {
  key: string;
  data: T | null;
  error: ApiError | null;
}

/** Calls `load` again when `key` changes; `null` loads nothing. */
export function useResource<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>): Resource<T> {
  const [state, setState] = useState<State<T>>({ key: "", data: null, error: null });
  const latest = useRef(load);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const current = useRef<AbortController | null>(null);
  useEffect(() => {
    latest.current = load;
  });

  const start = useCallback((forKey: string) => {
    current.current?.abort();
    const mine = new AbortController();
    current.current = mine;
    latest.current(mine.signal).then(
      (data) => {
        if (!mine.signal.aborted) setState({ key: forKey, data, error: null });
      },
      (thrown: unknown) => {
        if (mine.signal.aborted) return;
        setState((before) => ({
          key: forKey,
          data: before.key === forKey ? before.data : null,
          error: fromThrown(thrown),
        }));
      },
    );
  }, []);

  useEffect(() => {
    if (key === null) return undefined;
    start(key);
    return () => {
      clearTimeout(timer.current);
      timer.current = undefined;
      current.current?.abort();
    };
  }, [key, start]);

  const reload = useCallback(() => {
    if (key === null || timer.current !== undefined) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      start(key);
    }, COALESCE_MS);
  }, [key, start]);

  const update = useCallback((change: (data: T) => T) => {
    setState((before) => (before.data === null ? before : { ...before, data: change(before.data) }));
  }, []);

  const here = state.key === key;
  return {
    data: here ? state.data : null,
    error: here ? state.error : null,
    loading: key !== null && !here,
    reload,
    update,
  };
}
