/** Digests as the contract defines them, made without any of its code: sorted keys, `JSON.stringify`, `node:crypto`. */
import { createHash } from 'node:crypto';

export function independentJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(independentJson).join(',')}]`;
  const members = Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${independentJson(member)}`).join(',')}}`;
}

export function independentBytesDigest(text: string): string {
  return `sha256:${createHash('sha256').update(Buffer.from(text, 'utf8')).digest('hex')}`;
}

export function independentBareDigest(value: unknown): string {
  return independentBytesDigest(independentJson(value));
}

/** Of a record without its own top-level `digest`, in the domain `serve.zone/<name>`. */
export function independentRecordDigest(name: string, record: object): string {
  const content = Object.fromEntries(Object.entries(record).filter(([key]) => key !== 'digest'));
  return independentBytesDigest(`serve.zone/${name}\0${independentJson(content)}`);
}
