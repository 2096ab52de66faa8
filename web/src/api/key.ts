// Keys by which the api knows a request that comes again.

export function newKey(): string {
  // crypto.randomUUID exists only on secure origins, and a cluster is often reached by plain HTTP inside its network.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
