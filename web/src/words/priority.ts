// Priority classes of jobs.
import type { PriorityClass } from "../api/types";

/** Returns the classes of the tenant's jobs. Administrators see those of all tenants. */
export function usable(classes: readonly PriorityClass[], tenant: string): PriorityClass[] {
  return classes.filter((one) => one.tenants.length === 0 || one.tenants.includes(tenant));
}

/** Returns the name of a class with its range. */
export function classText({ name, lowest, highest }: PriorityClass): string {
  return `${name} (${lowest} to ${highest})`;
}
