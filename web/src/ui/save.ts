// Saves a loaded file on the user's machine.

/**
 * The token is sent in a header, so a plain link cannot load the file. The browser keeps the body
 * until it is saved.
 */
export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
