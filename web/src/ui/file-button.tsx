// A button that loads a file of the API and saves it.
import { useState, type ReactNode } from "react";
import { fromThrown, type ApiError } from "../api/problem";
import { Icon } from "./icon";
import { save } from "./save";

/** Loads a file and saves it. An error is shown in its title and icon. */
export function FileButton({
  load,
  name,
  title,
  isSmall = false,
  children,
}: {
  load: () => Promise<Blob>;
  name: string;
  title: string;
  isSmall?: boolean;
  children: ReactNode;
}) {
  const [failed, setFailed] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const go = () => {
    setBusy(true);
    load()
      .then(
        (file) => {
          setFailed(null);
          save(file, name);
        },
        (thrown: unknown) => setFailed(fromThrown(thrown)),
      )
      .finally(() => setBusy(false));
  };
  return (
    <button
      type="button"
      className={isSmall ? "button button-small" : "button"}
      disabled={busy}
      onClick={go}
      title={failed === null ? title : `It could not be loaded: ${failed.detail ?? failed.title}`}
    >
      <Icon name={failed === null ? "download" : "warning"} /> {children}
    </button>
  );
}
