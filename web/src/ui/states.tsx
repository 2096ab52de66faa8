// Content of a panel without data: loading, empty, or failed.
import type { ReactNode } from "react";
import type { ApiError } from "../api/problem";
import { Icon } from "./icon";

export function Loading({ label = "Loading", rows = 3 }: { label?: string; rows?: number }) {
  return (
    <div className="loading" role="status">
      <span className="sr-only">{label}…</span>
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} className="skeleton" aria-hidden="true" />
      ))}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children === undefined ? null : <div className="empty-text">{children}</div>}
    </div>
  );
}

export function Failure({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div className="failure" role="alert">
      <Icon name="warning" />
      <div>
        <p className="failure-title">{error.title}</p>
        {error.detail === null ? null : <p className="failure-text">{error.detail}</p>}
      </div>
      {retry === undefined ? null : (
        <button type="button" className="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}
