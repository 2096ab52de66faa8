// The filters of the job list, kept in the address so that a view can be shared and the back button works.
import type { JobPhase } from "../../api/types";
import { PHASES } from "../../ui/phase";

export interface Filters {
  phases: readonly JobPhase[];
  label: string;
  name: string;
  /** The api's continue token of the page that is shown; `null` on the first. */
  page: string | null;
}

export function readFilters(params: URLSearchParams): Filters {
  const wanted = new Set(params.getAll("phase").flatMap((value) => value.split(",")));
  return {
    phases: PHASES.filter((phase) => wanted.has(phase)),
    label: params.get("label") ?? "",
    name: params.get("name") ?? "",
    page: params.get("page"),
  };
}

/** A changed filter leads back to the first page: a continue token belongs to the query that gave it. */
export function writeFilters(filters: Omit<Filters, "page">, page: string | null = null): URLSearchParams {
  const params = new URLSearchParams();
  if (filters.phases.length > 0) params.set("phase", filters.phases.join(","));
  if (filters.label !== "") params.set("label", filters.label);
  if (filters.name !== "") params.set("name", filters.name);
  if (page !== null) params.set("page", page);
  return params;
}

export function isFiltered(filters: Filters): boolean {
  return filters.phases.length > 0 || filters.label !== "" || filters.name !== "";
}
