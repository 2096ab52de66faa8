// Tenant for which an administrator acts. It holds as long as this tab is open and the same token
// is used; another tab may change the token. The API reads the tenant from a request header, and
// refuses it from other users.
import { useSyncExternalStore } from "react";

export const TENANT_HEADER = "muster-tenant";

// A different key than that of an earlier release, which stored the name only: a tab may survive an
// upgrade.
const KEY = "muster.acting";
const listeners = new Set<() => void>();
let memory: string | null = null;

/** Returns the tenant chosen with this token; null for the token's own tenant. */
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
    // Storage is not available: the choice lasts until the next load of the page.
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
