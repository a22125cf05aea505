/**
 * Building blocks of every schema on the wire. All objects are closed: an unknown, missing or misplaced key is refused.
 */
import { type Static, type TProperties, type TSchema, Type } from '@sinclair/typebox';
import type { TSha256Digest } from './digest.js';

/** An object that accepts exactly these keys. */
export function closed<T extends TProperties>(properties: T) {
  return Type.Object(properties, { additionalProperties: false });
}

export function nullable<T extends TSchema>(schema: T) {
  return Type.Union([schema, Type.Null()]);
}

/** One of these texts exactly. */
export function oneOf<T extends readonly string[]>(...values: T) {
  return Type.Unsafe<T[number]>(Type.Union(values.map((value) => Type.Literal(value))));
}

/**
 * 1..128 characters of `[A-Za-z0-9._:-]`, a letter or digit first, so that JavaScript order, byte order and Postgres
 * `collate "C"` order are one order.
 */
export const Identifier = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$', maxLength: 128 });

export const Digest = Type.Unsafe<TSha256Digest>(Type.String({ pattern: '^sha256:[0-9a-f]{64}$', maxLength: 71 }));

export const PositiveInteger = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
export const NaturalInteger = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

/** A reason that a person gives; 1..512 characters. */
export const Reason = Type.String({ minLength: 1, maxLength: 512 });

/** A path or name as Docker reports it, at most 4,096 characters; may be empty where Docker says nothing. */
export const DockerText = Type.String({ maxLength: 4096 });
export const DockerName = Type.String({ minLength: 1, maxLength: 255 });

/** Exact reference of one accepted, immutable record. */
export const FleetCutoverAcceptedEvidenceReference = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
});
export type IFleetCutoverAcceptedEvidenceReference = Static<typeof FleetCutoverAcceptedEvidenceReference>;
export type Reference = IFleetCutoverAcceptedEvidenceReference;

/** The reference of a record that carries one. */
export function referenceOf(record: Reference): Reference {
  return { id: record.id, generation: record.generation, digest: record.digest };
}

export function sameReference(left: Reference | null, right: Reference | null): boolean {
  if (left === null || right === null) return left === right;
  return left.id === right.id && left.generation === right.generation && left.digest === right.digest;
}

/** Ascending order of strings by UTF-16 code unit, which for identifiers is byte order as well. */
export function compareText(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
