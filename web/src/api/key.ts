// Idempotency keys, by which the API recognises a repeated request.

export function newKey(): string {
  // crypto.randomUUID exists only on secure origins, but clusters are often reached by plain HTTP.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
