// Shown when a page fails. Without it React removes everything and leaves a blank window.
import { Component, type ReactNode } from "react";
import { ApiError } from "../api/problem";
import { Failure } from "./states";

interface Props {
  /** Present location; another one is rendered anew. */
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
    // An error has no location, so the location of its first appearance is used.
    return failed.place === "" ? { failed: { ...failed, place } } : { failed: null };
  }

  override render(): ReactNode {
    const { failed } = this.state;
    if (failed === null) return this.props.children;
    return <Failure error={told(failed.error)} retry={() => window.location.reload()} />;
  }
}

/**
 * Files of the page have hashes in their names. After an upgrade of the server the old ones do not
 * exist.
 */
function told(error: unknown): ApiError {
  const text = error instanceof Error ? error.message : String(error);
  if (/dynamically imported module|Importing a module script failed|Unable to preload/i.test(text)) {
    return new ApiError(
      0,
      "This part of the page cannot be loaded",
      "The server may have been upgraded since the page was opened; loading it again brings the new one.",
    );
  }
  return new ApiError(0, "This page failed", `${text}. It is a mistake in the page, not in your jobs, which continue.`);
}
