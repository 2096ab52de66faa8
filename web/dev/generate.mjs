// Writes src/api/schema.d.ts from the api's OpenAPI document. Each operation is written out under its path: by their
// operationId the generator would keep one of all that share a name, and the page needs no names of operations.
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../../api/openapi.json", import.meta.url);
const target = new URL("../src/api/schema.d.ts", import.meta.url);

const document = JSON.parse(readFileSync(source, "utf8"));
for (const path of Object.values(document.paths)) {
  for (const operation of Object.values(path)) {
    if (typeof operation === "object" && operation !== null) delete operation.operationId;
  }
}
const types = astToString(await openapiTS(document));
writeFileSync(target, `// Generated from api/openapi.json by \`npm run generate\`. Do not edit.\n${types}`);
