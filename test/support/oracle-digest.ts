/** Digests by another way than the service's: sorted keys, JSON.stringify, node's createHash. */
import { createHash } from 'node:crypto';

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** RFC 8785 for what the contract allows: strings, safe integers, arrays, objects. */
export function canonicalText(value: unknown): string {
  return written(value as Json);
}

/** Text by text: an object of JavaScript's would put keys that look like array indices first. */
function written(value: Json): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(written).join(',')}]`;
  const members = value as { readonly [key: string]: Json };
  const pairs = Object.keys(members)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${written(members[key] ?? null)}`);
  return `{${pairs.join(',')}}`;
}

function hash(text: string): string {
  return `sha256:${createHash('sha256').update(text).digest('hex')}`;
}

export function bareDigestOf(value: unknown): string {
  return hash(canonicalText(value));
}

/** The digest that a sealed record of the domain (`fleet-cutover-scope`, …) has to carry. */
export function sealedDigestOf(domain: string, record: object): string {
  const { digest: _digest, ...content } = record as { digest?: unknown };
  return hash(`serve.zone/${domain}\0${canonicalText(content)}`);
}
