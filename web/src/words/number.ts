// Formats numbers. Digits are grouped by a thin no-break space, which is a decimal point in no
// locale.

const THIN = "\u202F";
export const NONE = "–";

export function count(value: number): string {
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)}\u00A0${value === 1 ? one : many}`;
}

/**
 * Formats a share of 1 as percent, with more digits if they are significant: 99.94 % is not 100 %.
 */
export function percent(share: number | null | undefined, digits = 1): string {
  return share === null || share === undefined ? NONE : `${(share * 100).toFixed(digits)}${THIN}%`;
}

/** Returns the word before `loss` and `accuracy` of an evaluation. */
export function splitName(split: "test" | "validation" | null | undefined): string {
  return split === "validation" ? "val" : "test";
}

/**
 * Formats a loss: four significant digits, with an exponent only for values that plain digits would
 * hide.
 */
export function loss(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.0001 || size >= 100_000)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(1) : size >= 10 ? value.toFixed(2) : value.toFixed(4);
}

export function rate(value: number): string {
  return value >= 100 ? count(value) : value.toPrecision(3);
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : 1;
  return `${size.toFixed(digits)}${THIN}${units[unit] ?? ""}`;
}

export function millis(value: number): string {
  return `${value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2)}${THIN}ms`;
}
