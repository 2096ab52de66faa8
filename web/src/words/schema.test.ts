import { describe, expect, it } from "vitest";
import { readFileSync } from "node:fs";
import { fieldsAt, insertField, placeAt, type Schemas } from "./schema";

const openapi = JSON.parse(readFileSync("../api/openapi.json", "utf8")) as {
  components: { schemas: Schemas };
};
const { schemas } = openapi.components;

/** Place of the `|` in a text. */
const place = (text: string) => placeAt(text.replace("|", ""), text.indexOf("|"));
const names = (text: string, root = "JobSpec") => fieldsAt(schemas, root, place(text)).map(({ name }) => name);

describe("the place in a document", () => {
  it("is the path of the objects around it", () => {
    expect(place("a: 1\nscale:\n  workers:\n    |").path).toEqual(["scale", "workers"]);
    expect(place("scale:\n  workers: { min: 1, |").path).toEqual(["scale", "workers"]);
    expect(place("scale:\n  workers: { min: 1 }\n|").path).toEqual([]);
    expect(place("scale:\n  workers: { min: 1 }\n  |").path).toEqual(["scale"]);
    expect(place("command:\n  secrets:\n    - name: x\n      |").path).toEqual(["command", "secrets"]);
    expect(place("engine: # comment\n  batch: 1|28").path).toEqual(["engine"]);
  });
});

describe("fields by the API's schema", () => {
  it("are those of the object at the place", () => {
    expect(names("|")).toContain("command");
    expect(names("scale:\n  |")).toEqual(expect.arrayContaining(["workers", "ps_shards"]));
    expect(names("scale:\n  workers: {|")).toEqual(["max", "min"].sort());
    expect(names("after:\n  - |")).toEqual(expect.arrayContaining(["job", "on"]));
    expect(names("unknown:\n  |")).toEqual([]);
  });

  it("depend on the kind of the object", () => {
    const cnn = names("engine:\n  model:\n    kind: cnn\n    |");
    expect(cnn).toContain("channels");
    expect(cnn).not.toContain("hidden");
    expect(names("engine:\n  model: { kind: mlp, |")).toContain("hidden");
    expect(names("engine:\n  model:\n    |")).toEqual(expect.arrayContaining(["channels", "hidden"]));
  });

  it("say type and meaning", () => {
    const fields = fieldsAt(schemas, "JobSpec", place("|"));
    const retries = fields.find(({ name }) => name === "retries");
    expect(retries?.type).toBe("integer");
    expect(retries?.description).toContain("failures");
    expect(fields.find(({ name }) => name === "scale")?.isNested).toBe(true);
  });

  it("of a study follow its parts", () => {
    expect(names("search:\n  |", "StudySpec")).toContain("parameters");
    expect(names("search:\n  stopper: { kind: asha, |", "StudySpec")).toContain("eta");
  });
});

describe("an inserted field", () => {
  const field = { name: "retries", description: "", required: false, type: "integer", isNested: false };

  it("replaces an empty line, or follows the line", () => {
    const text = "name: a\n\nscale:";
    expect(insertField(text, 8, placeAt(text, 8), field)).toEqual(["name: a\nretries: \nscale:", 17]);
    expect(insertField("name: a", 3, placeAt("name: a", 3), field)).toEqual(["name: a\nretries: ", 17]);
  });

  it("opens an object", () => {
    const nested = { ...field, name: "workers", isNested: true };
    const text = "scale:\n  ";
    expect(insertField(text, 9, placeAt(text, 9), nested)[0]).toBe("scale:\n  workers:\n    ");
  });
});
