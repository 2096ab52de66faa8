// Generates src/api/schema.d.ts from the API's OpenAPI document.
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../../api/openapi.json", import.meta.url);
const target = new URL("../src/api/schema.d.ts", import.meta.url);

const types = astToString(await openapiTS(JSON.parse(readFileSync(source, "utf8"))));
writeFileSync(target, `// Generated from api/openapi.json by \`npm run generate\`. Do not edit.\n${types}`);
