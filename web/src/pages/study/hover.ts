// The trial under the pointer, shared by all charts and the table.
export interface Hover {
  number: number | null;
  set: (number: number | null) => void;
  /** Opens the job of the trial under the pointer, if it has one. */
  open: () => void;
}
