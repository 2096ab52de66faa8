// The token this browser acts with. It lives in localStorage so that a reload keeps it; `#token=` in the address, as
// printed by `muster up`, hands one over and is wiped from the address at once. A fragment never reaches a server's log.
import { useSyncExternalStore } from "react";
import { actFor } from "./tenant";

const KEY = "muster.token";
const listeners = new Set<() => void>();
let memory: string | null = null;
let expired = false;

export function token(): string | null {
  try {
    return localStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

/** Whether the last token ended by a refusal of the api rather than by signing out. */
export function hasExpired(): boolean {
  return expired;
}

export function signIn(value: string): void {
  expired = false;
  keep(value);
}

export function signOut(): void {
  expired = false;
  keep(null);
}

/** The api refused the token. Does nothing when another one has taken its place since the request was sent. */
export function expire(refused: string | null): void {
  if (refused === null || token() !== refused) return;
  expired = true;
  keep(null);
}

/** Takes `#token=` over from the address, if it is there. Call before the router reads the address. */
export function adoptFragment(location: Location, history: History): boolean {
  const value = new URLSearchParams(location.hash.slice(1)).get("token");
  if (value === null || value === "") return false;
  signIn(value);
  history.replaceState(history.state, "", location.pathname + location.search);
  return true;
}

export function useToken(): string | null {
  return useSyncExternalStore(subscribe, token);
}

function keep(value: string | null): void {
  // Another token may be nobody's who could look there.
  actFor(null, null);
  memory = value;
  try {
    if (value === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, value);
  } catch {
    // Storage is barred: the token then lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  window.addEventListener("storage", listener);
  return () => {
    listeners.delete(listener);
    window.removeEventListener("storage", listener);
  };
}
