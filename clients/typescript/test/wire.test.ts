/** The types of src/wire are those of docs/openapi.json, field for field: a walker over both. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

const HERE = new URL("..", import.meta.url);
const openapi = JSON.parse(readFileSync(new URL("../../docs/openapi.json", HERE), "utf8"));
const schemas: Record<string, any> = openapi.components.schemas;
/** Of browsers' sessions and probes: not the business of a client. Other parts of the API may come before their types. */
const ABSENT = new Set(["Health", "Session", "NewSession"]);

/** Our types as text: `Name` → its fields (`name?` → type), or the type that it stands for. */
function declared(): Map<string, string | Map<string, string>> {
  const types = new Map<string, string | Map<string, string>>();
  for (const file of readdirSync(new URL("src/wire/", HERE))) {
    const source = readFileSync(new URL(`src/wire/${file}`, HERE), "utf8").replaceAll(/\/\*\*[\s\S]*?\*\//g, "");
    for (const [, name, body] of source.matchAll(/export interface (\w+) \{\n([\s\S]*?)\n\}/g)) {
      const fields = [...(body ?? "").matchAll(/^ {2}(\w+\??): (.*);$/gm)].map(([, field, type]) => [field ?? "", type ?? ""] as const);
      types.set(name ?? "", new Map(fields));
    }
    for (const [, name, type] of source.matchAll(/export type (\w+) =\s+([\s\S]*?);\n(?=\n|$)/g)) {
      types.set(name ?? "", (type ?? "").replaceAll(/\s+/g, " ").replaceAll("; }", " }"));
    }
  }
  return types;
}

/** The type that a schema is in our words. */
function typeOf(schema: any): string {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(" | ");
  if (schema.allOf) return schema.allOf.map(typeOf).join(" & ");
  if (schema.enum) return schema.enum.map((value: unknown) => JSON.stringify(value)).join(" | ");
  const types: string[] = [schema.type ?? []].flat();
  return types.map((type) => simple(type, schema)).join(" | ") || "unknown";
}

function simple(type: string, schema: any): string {
  if (type === "integer" || type === "number") return "number";
  if (type === "array") return typeOf(schema.items).includes(" ") ? `(${typeOf(schema.items)})[]` : `${typeOf(schema.items)}[]`;
  if (type !== "object") return type;
  if (schema.properties) return `{ ${[...fieldsOf(schema)].map(([name, field]) => `${name}: ${field}`).join("; ")} }`;
  return typeof schema.additionalProperties === "object" ? `Record<string, ${typeOf(schema.additionalProperties)}>` : "Record<string, unknown>";
}

function fieldsOf(schema: any): Map<string, string> {
  const required = new Set<string>(schema.required ?? []);
  return new Map(Object.entries<any>(schema.properties).map(([name, field]) => [required.has(name) ? name : `${name}?`, typeOf(field)]));
}

/** Any value includes none: the document calls fields of any type required that a request may leave out. */
function untyped(fields: Map<string, string>): Map<string, string> {
  return new Map([...fields].map(([name, type]) => [type === "unknown" ? name.replace(/\?$/, "") : name, type]));
}

test("every type of the API has the fields and types of the OpenAPI document", () => {
  const types = declared();
  for (const [name, type] of types) {
    const schema = schemas[name];
    assert.ok(schema, `src/wire has a type ${name} that docs/openapi.json does not have`);
    if (typeof type === "string") assert.equal(type, typeOf(schema), `type ${name}`);
    else assert.deepEqual(Object.fromEntries(untyped(type)), Object.fromEntries(untyped(fieldsOf(schema))), `interface ${name}`);
  }
});

test("every schema that our types mention is one of our types", () => {
  const types = declared();
  assert.ok(types.size > 90, `only ${types.size} types were found: the walker does not read them`);
  const mentioned = (schema: any): string[] => [...JSON.stringify(schema).matchAll(/#\/components\/schemas\/(\w+)/g)].map(([, name]) => name ?? "");
  for (const name of types.keys()) for (const other of mentioned(schemas[name])) assert.ok(types.has(other), `${name} mentions ${other}, which is in no file of src/wire`);
  for (const name of ABSENT) assert.ok(!types.has(name), `${name} is there after all`);
});

test("the walker notices a field that is missing, one that is too many, and another type", () => {
  const fields = fieldsOf(schemas["Lease"]);
  assert.deepEqual([...fields.keys()].sort(), ["attempt", "job", "lease_ms", "lease_token"]);
  assert.equal(fields.get("job"), "Job");
  assert.equal(typeOf({ type: ["string", "null"] }), "string | null");
  assert.equal(typeOf({ oneOf: [{ $ref: "#/components/schemas/Rate" }, { type: "null" }] }), "Rate | null");
  assert.equal(fieldsOf({ properties: { a: { type: "integer" } } }).get("a?"), "number");
});
