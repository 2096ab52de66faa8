// For whom an administrator looks: another tenant than its own, as long as this tab is open and the same token is used, which another tab
// may change. The api reads it from a header of each request, and refuses it from anybody else.
import { useSyncExternalStore } from "react";

export const TENANT_HEADER = "muster-tenant";

// Not that of a release which kept the name alone: a tab may live through an upgrade.
const KEY = "muster.acting";
const listeners = new Set<() => void>();
let memory: string | null = null;

/** The tenant's name for whoever has that token; null for the token's own. */
export function actingTenant(token: string | null): string | null {
  const kept = read();
  if (kept === null || token === null) return null;
  const [tenant, chosenWith] = JSON.parse(kept) as [string, string];
  return chosenWith === token ? tenant : null;
}

export function actFor(tenant: string | null, token: string | null): void {
  memory = tenant === null || token === null ? null : JSON.stringify([tenant, token]);
  try {
    if (memory === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, memory);
  } catch {
    // Storage is barred: it then lasts until the page is loaded again.
  }
  for (const listener of listeners) listener();
}

export function useActingTenant(token: string | null): string | null {
  return useSyncExternalStore(subscribe, () => actingTenant(token));
}

function read(): string | null {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
