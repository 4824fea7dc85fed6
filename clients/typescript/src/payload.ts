/**
 * Schemas of payloads. Any library that implements Standard Schema fits (zod, valibot, arktype): this file knows only
 * the property `~standard`, and depends on none of them. It never changes what is sent: a producer checks a payload and
 * sends it as it was given; a worker checks it again and hands on what the schema made of it.
 */
import { PayloadMismatch } from "./errors.js";

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

type Checked<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

/** The part of Standard Schema that is used here. */
export interface PayloadSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Checked<Output> | Promise<Checked<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What a producer passes. */
export type InputOf<S extends PayloadSchema> = NonNullable<S["~standard"]["types"]>["input"];
/** What a handler gets. */
export type OutputOf<S extends PayloadSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** The longest list of issues in an error message. */
const ISSUES_SHOWN = 10;

/** Checks a payload; throws `PayloadMismatch`. Without a schema everything matches. */
export async function checkPayload(kind: string, schema: PayloadSchema | undefined, payload: unknown): Promise<unknown> {
  if (schema === undefined) return payload;
  const checked = await schema["~standard"].validate(payload);
  if (checked.issues === undefined) return checked.value;
  const issues = checked.issues.slice(0, ISSUES_SHOWN).map(describe);
  if (checked.issues.length > ISSUES_SHOWN) issues.push(`and ${checked.issues.length - ISSUES_SHOWN} more`);
  throw new PayloadMismatch(kind, issues);
}

/** The JSON Schema of what producers send, if the library offers one (zod from 4.2, and others that follow). */
export function jsonSchemaOf(schema: PayloadSchema | undefined): Record<string, unknown> | undefined {
  const standard = schema?.["~standard"] as { jsonSchema?: { input?: (options: { target: string }) => unknown } } | undefined;
  try {
    const made = standard?.jsonSchema?.input?.({ target: "draft-2020-12" });
    return typeof made === "object" && made !== null ? (made as Record<string, unknown>) : undefined;
  } catch {
    // Not every schema can be written as JSON Schema: dates, transforms. The worker checks the payload itself.
    return undefined;
  }
}

function describe(issue: Issue): string {
  const path = (issue.path ?? []).map((step) => String(typeof step === "object" ? step.key : step)).join(".");
  return path === "" ? issue.message : `${path}: ${issue.message}`;
}
