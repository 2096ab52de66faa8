// For whom an administrator looks: another tenant than its own, as long as this tab is open and the same token is used. The api reads it
// from a header of each request, and refuses it from anybody else.
import { useSyncExternalStore } from "react";

export const TENANT_HEADER = "muster-tenant";

const KEY = "muster.tenant";
const listeners = new Set<() => void>();
let memory: string | null = null;

/** The tenant's name; null for the token's own. */
export function actingTenant(): string | null {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

export function actFor(tenant: string | null): void {
  memory = tenant;
  try {
    if (tenant === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, tenant);
  } catch {
    // Storage is barred: it then lasts until the page is loaded again.
  }
  for (const listener of listeners) listener();
}

export function useActingTenant(): string | null {
  return useSyncExternalStore(subscribe, actingTenant);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
