// Filters of the job list. They are part of the address, so that a view can be shared and the back
// button works.
import type { JobPhase } from "../../api/types";
import { PHASES } from "../../ui/phase";

export interface Filters {
  phases: readonly JobPhase[];
  label: string;
  name: string;
  /** Whether only the user's own jobs are shown. */
  mine: boolean;
  /** Whether trials of studies are shown. */
  trials: boolean;
  /** The API's continue token of the shown page; `null` on the first. */
  page: string | null;
}

export const NO_FILTERS: Omit<Filters, "page"> = { phases: [], label: "", name: "", mine: false, trials: true };

export function readFilters(params: URLSearchParams): Filters {
  const wanted = new Set(params.getAll("phase").flatMap((value) => value.split(",")));
  return {
    phases: PHASES.filter((phase) => wanted.has(phase)),
    label: params.get("label") ?? "",
    name: params.get("name") ?? "",
    mine: params.get("mine") === "1",
    trials: params.get("trials") !== "0",
    page: params.get("page"),
  };
}

/** A changed filter leads to the first page, because a continue token belongs to its query. */
export function writeFilters(filters: Omit<Filters, "page">, page: string | null = null): URLSearchParams {
  const params = new URLSearchParams();
  if (filters.phases.length > 0) params.set("phase", filters.phases.join(","));
  if (filters.label !== "") params.set("label", filters.label);
  if (filters.name !== "") params.set("name", filters.name);
  if (filters.mine) params.set("mine", "1");
  if (!filters.trials) params.set("trials", "0");
  if (page !== null) params.set("page", page);
  return params;
}

export function isFiltered(filters: Filters): boolean {
  const { phases, label, name, mine, trials } = filters;
  return phases.length > 0 || label !== "" || name !== "" || mine || !trials;
}
