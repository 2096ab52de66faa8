// The tenant's event stream: one connection for the whole page, and its listeners.
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { decode, type LiveMessage } from "./messages";
import { openStream, type StreamState } from "./stream";

type Listener = (message: LiveMessage) => void;

interface Feed {
  state: StreamState;
  /**
   * Number of connections. Data that was loaded before the first one may lack events, so it is
   * loaded again.
   */
  connections: number;
  listen: (listener: Listener) => () => void;
}

const FeedContext = createContext<Feed | null>(null);

export function FeedProvider({ children }: { children: ReactNode }) {
  const listeners = useRef(new Set<Listener>());
  const [state, setState] = useState<StreamState>("connecting");
  const [connections, setConnections] = useState(0);
  useEffect(
    () =>
      openStream("/api/v1/stream", {
        onState: setState,
        onMessage: (message) => {
          if (message.event === "opened") setConnections((before) => before + 1);
          const decoded = decode(message);
          if (decoded !== null) for (const listener of listeners.current) listener(decoded);
        },
      }),
    [],
  );
  const feed = useMemo<Feed>(
    () => ({
      state,
      connections,
      listen: (listener) => {
        listeners.current.add(listener);
        return () => {
          listeners.current.delete(listener);
        };
      },
    }),
    [state, connections],
  );
  return <FeedContext.Provider value={feed}>{children}</FeedContext.Provider>;
}

export function useFeedState(): StreamState {
  return useFeed().state;
}

/** Calls `onMessage` for every message, and `onConnect` after every connect. */
export function useLive(onMessage: Listener, onConnect: () => void): void {
  const { listen, connections } = useFeed();
  const message = useRef(onMessage);
  const connect = useRef(onConnect);
  useEffect(() => {
    message.current = onMessage;
    connect.current = onConnect;
  });
  useEffect(() => listen((received) => message.current(received)), [listen]);
  useEffect(() => {
    if (connections > 0) connect.current();
  }, [connections]);
}

function useFeed(): Feed {
  const feed = useContext(FeedContext);
  if (feed === null) throw new Error("FeedProvider is missing above");
  return feed;
}
