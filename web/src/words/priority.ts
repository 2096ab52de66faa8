// The rules of the API for priorities of jobs, and its words. Administrators see all priority
// classes; a class of other tenants is not one for this job.
import type { Me, PriorityClass } from "../api/types";

/** Returns the classes that jobs of the tenant may have. */
export function usable(classes: readonly PriorityClass[], tenant: string): PriorityClass[] {
  return classes.filter((one) => one.tenants.length === 0 || one.tenants.includes(tenant));
}

/**
 * Returns why the API would refuse the number with the class, or null. Without usable classes the
 * API decides: the page does not know whether other classes exist.
 */
export function refusal(
  priority: number,
  name: string | null,
  classes: readonly PriorityClass[],
  user: { access: Me["access"]; tenant: string },
): string | null {
  const within = (one: PriorityClass) => one.lowest <= priority && priority <= one.highest;
  if (name !== null) {
    const own = classes.find((one) => one.name === name);
    if (own === undefined || within(own)) return null;
    return refused(priority, `${own.lowest} to ${own.highest}, the range of priority class ${own.name}`);
  }
  if (priority === 0 || classes.length === 0 || classes.some(within)) return null;
  const who = user.access === "admin" ? "administrators for" : "members of";
  const ranges = classes.map(classText).join(", ");
  return refused(priority, `0, or a number of a priority class that ${who} tenant ${user.tenant} may use: ${ranges}`);
}

/** Returns the name of a class with its range. */
export function classText({ name, lowest, highest }: PriorityClass): string {
  return `${name} (${lowest} to ${highest})`;
}

function refused(priority: number, expected: string): string {
  return `priority is ${priority}; expected ${expected}`;
}
