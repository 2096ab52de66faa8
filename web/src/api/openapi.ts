// Schemas of documents, from the OpenAPI document that the server has generated from its code.
import type { Schemas } from "../words/schema";

let loaded: Promise<Schemas> | null = null;

/** Returns the schemas by name. They are loaded once. */
export function schemas(): Promise<Schemas> {
  loaded ??= fetch("/openapi.json")
    .then((answer) => answer.json())
    .then((document: { components: { schemas: Schemas } }) => document.components.schemas);
  loaded.catch(() => {
    loaded = null;
  });
  return loaded;
}
