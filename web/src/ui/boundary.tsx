// What is shown where a page fails: without it React takes everything away, and a blank window tells nobody anything.
import { Component, type ReactNode } from "react";
import { ApiError } from "../api/problem";
import { Failure } from "./states";

interface Props {
  /** Where the reader is: at another place it is tried anew. */
  place: string;
  children: ReactNode;
}

interface State {
  failed: { error: unknown; place: string } | null;
}

export class Boundary extends Component<Props, State> {
  override state: State = { failed: null };

  static getDerivedStateFromError(error: unknown): Partial<State> {
    return { failed: { error, place: "" } };
  }

  static getDerivedStateFromProps({ place }: Props, { failed }: State): Partial<State> | null {
    if (failed === null || failed.place === place) return null;
    // An error comes without its place, which is where it was seen first.
    return failed.place === "" ? { failed: { ...failed, place } } : { failed: null };
  }

  override render(): ReactNode {
    const { failed } = this.state;
    if (failed === null) return this.props.children;
    return <Failure error={told(failed.error)} retry={() => window.location.reload()} />;
  }
}

/** Parts of the page carry the hash of their content in their names: after an upgrade of the server those of before are gone. */
function told(error: unknown): ApiError {
  const text = error instanceof Error ? error.message : String(error);
  if (/dynamically imported module|Importing a module script failed|Unable to preload/i.test(text)) {
    return new ApiError(0, "This part of the page cannot be loaded", "The server may have been upgraded since the page was opened; loading it again brings the new one.");
  }
  return new ApiError(0, "This page failed", `${text}. It is a mistake in the page, not in your jobs, which go on.`);
}
