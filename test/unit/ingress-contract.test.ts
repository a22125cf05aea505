import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import { bareDigest, digestDomain, recordDigest } from '../../src/contract/digest.js';
import {
  fleetCutoverIngressDesignationRecord,
  type IFleetCutoverIngressDesignation,
  type IFleetCutoverIngressPreparationRequest,
  snapshotFleetCutoverIngressDesignation,
  snapshotFleetCutoverIngressPreparationRequest,
  validateFleetCutoverIngressDesignation,
  validateFleetCutoverIngressPreparationRequest,
} from '../../src/contract/ingress.js';
import { methods } from '../../src/contract/methods.js';
import { ContractError } from '../../src/contract/record.js';
import { parseStrictJson } from '../../src/contract/strict-json.js';
import { independentRecordDigest } from '../support/independent-digest.js';

interface Vectors {
  readonly designations: readonly {
    readonly name: string;
    readonly canonical: string;
    readonly digest: string;
    readonly record: IFleetCutoverIngressDesignation;
  }[];
  readonly invalidDesignations: readonly { readonly name: string; readonly record: object; readonly error: string }[];
  readonly requests: readonly {
    readonly name: string;
    readonly request: IFleetCutoverIngressPreparationRequest;
    readonly requestDigest: string;
  }[];
}

/** Made once by another implementation, in another language. */
const vectors = parseStrictJson(
  readFileSync(new URL('../vectors/ingress.json', import.meta.url)),
) as unknown as Vectors;
const [{ record: first }, { record: second }] = vectors.designations as [
  Vectors['designations'][number],
  Vectors['designations'][number],
];
const domain = digestDomain('IFleetCutoverIngressDesignation');

/** With one member put at the path, or taken away; sealed again, so that only the shape is wrong. */
function edited(record: object, path: readonly string[], value: unknown): Record<string, unknown> {
  const copy = structuredClone(record) as Record<string, unknown>;
  const holder = path.slice(0, -1).reduce((at, key) => at[key] as Record<string, unknown>, copy);
  if (value === undefined) delete holder[path.at(-1)!];
  else holder[path.at(-1)!] = value;
  if ('digest' in copy) copy['digest'] = recordDigest(domain, copy);
  return copy;
}

/** Paths of all members, at every level. */
function paths(value: object, above: readonly string[] = []): string[][] {
  return Object.entries(value).flatMap(([key, member]) => [
    [...above, key],
    ...(typeof member === 'object' && member !== null ? paths(member as object, [...above, key]) : []),
  ]);
}

describe('golden vectors', () => {
  it.each(vectors.designations)('designation: $name', async ({ canonical, digest, record }) => {
    expect(canonicalizeStrictJson(record)).toBe(canonical);
    expect(recordDigest(domain, record)).toBe(digest);
    expect(independentRecordDigest('fleet-cutover-ingress-designation', record)).toBe(digest);
    expect(record.digest).toBe(digest);
    expect(await validateFleetCutoverIngressDesignation(record)).toEqual([]);
    expect(snapshotFleetCutoverIngressDesignation(record)).toEqual(record);
  });

  it.each(vectors.invalidDesignations)('no designation: $name', async ({ record, error }) => {
    const errors = await validateFleetCutoverIngressDesignation(record);
    expect(errors.join('\n')).toContain(error);
    expect(() => snapshotFleetCutoverIngressDesignation(record)).toThrow(ContractError);
  });

  it.each(vectors.requests)('request: $name', async ({ request, requestDigest }) => {
    expect(await validateFleetCutoverIngressPreparationRequest(request)).toEqual([]);
    expect(snapshotFleetCutoverIngressPreparationRequest(request)).toEqual(request);
    const { mutationId: _, ...payload } = request;
    expect(bareDigest(payload)).toBe(requestDigest);
  });
});

describe('a designation', () => {
  const members = paths(second).filter(([last]) => last !== 'digest');

  it.each(members.map((path) => path.join('/')))('needs %s, of its own kind', async (path) => {
    for (const value of [undefined, [], {}, 0, '']) {
      const record = edited(second, path.split('/'), value);
      expect(await validateFleetCutoverIngressDesignation(record)).not.toEqual([]);
    }
  });

  it('is closed at every level', async () => {
    const objects = [[], ...members.filter((path) => typeof path.reduce<unknown>(at, second) === 'object')];
    expect(objects.length).toBe(8);
    for (const path of objects) {
      for (const key of ['bearer', 'hash', 'secretHash', 'keyId', 'extra']) {
        const errors = await validateFleetCutoverIngressDesignation(edited(second, [...path, key], 'x'));
        expect(errors, [...path, key].join('/')).not.toEqual([]);
      }
    }
  });

  it('has members for references and versions, and for nothing that is secret', () => {
    expect(Object.keys(second).sort()).toEqual(
      ['clusterId', 'credential', 'digest', 'generation', 'id', 'predecessor', 'runtime', 'scope', 'secret'].concat([
        'serviceId',
        'spec',
        'targetSet',
      ]),
    );
    expect(Object.keys(second.credential).sort()).toEqual(['credentialId', 'generation']);
    expect(Object.keys(second.secret).sort()).toEqual(['secretId', 'version']);
  });

  it('is copied, frozen and detached by its snapshot, without running code of the value', () => {
    const source = structuredClone(second);
    const snapshot = snapshotFleetCutoverIngressDesignation(source);
    source.credential.generation = 9;
    expect(snapshot.credential.generation).toBe(2);
    for (const each of [snapshot, snapshot.credential, snapshot.secret, snapshot.predecessor, snapshot.spec])
      expect(Object.isFrozen(each)).toBe(true);
    let ran = false;
    const trap = Object.defineProperty(structuredClone(second), 'serviceId', {
      enumerable: true,
      get: () => {
        ran = true;
        return 'sv-edge';
      },
    });
    expect(() => snapshotFleetCutoverIngressDesignation(trap)).toThrow(ContractError);
    expect(() => snapshotFleetCutoverIngressDesignation(new Proxy(second, {}))).toThrow(ContractError);
    expect(ran).toBe(false);
  });

  it('is validated without ever throwing', async () => {
    for (const value of [null, undefined, 1, 'x', [], () => {}, Symbol('x'), new Date(), first.credential])
      expect(await validateFleetCutoverIngressDesignation(value)).not.toEqual([]);
    expect(fleetCutoverIngressDesignationRecord.sealed).toBe(true);
  });
});

describe('a preparation request', () => {
  const { request } = vectors.requests[1]!;

  it('is closed, and needs every member', async () => {
    for (const path of paths(request)) {
      const without = edited(request, path, undefined);
      expect(await validateFleetCutoverIngressPreparationRequest(without), path.join('/')).not.toEqual([]);
    }
    for (const more of [
      { bearer: 'x' },
      { dryRun: true },
      { force: true },
      { legacyIngress: null },
      { phase: 'pallet' },
    ])
      expect(await validateFleetCutoverIngressPreparationRequest({ ...request, ...more })).not.toEqual([]);
    for (const key of ['runtime', 'scope', 'targetSet', 'heldSpec'])
      expect(await validateFleetCutoverIngressPreparationRequest({ ...request, [key]: null })).not.toEqual([]);
  });

  it('is what the method takes, but for the dry run', () => {
    const members = Object.keys(methods.prepareFleetCutoverIngress.request.properties);
    expect(members.filter((key) => key !== 'dryRun').sort()).toEqual(Object.keys(request).sort());
  });
});

function at(value: unknown, key: string): unknown {
  return (value as Record<string, unknown>)[key];
}
