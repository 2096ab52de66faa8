// The token of this browser. It is stored in localStorage, so that a reload keeps it. `#token=` in
// the address, as printed by `muster up`, sets it and is removed from the address at once. A
// fragment never reaches a server's log.
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

/** Whether the last token was refused by the API, and not removed by a sign-out. */
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

/** Handles a refused token. Does nothing if another token has replaced it since the request. */
export function expire(refused: string | null): void {
  if (refused === null || token() !== refused) return;
  expired = true;
  keep(null);
}

/**
 * Takes `#token=` from the address, if present. Must be called before the router reads the address.
 */
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
  // Another token may belong to a user without the right to see that tenant.
  actFor(null, null);
  memory = value;
  try {
    if (value === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, value);
  } catch {
    // Storage is not available: the token lasts until the page is closed.
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
