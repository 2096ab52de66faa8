// The trial under the pointer, the same in all charts and in the table.
export interface Hover {
  number: number | null;
  set: (number: number | null) => void;
  /** Goes to the job of the trial under the pointer, if it has one. */
  open: () => void;
}
