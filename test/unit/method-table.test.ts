import type { TSchema } from '@sinclair/typebox';
import { describe, expect, it } from 'vitest';
import { methodPath, type OwnerMethod } from '../../src/contract/method.js';
import { methodNames, methods, mutationNames } from '../../src/contract/methods.js';

const table: Readonly<Record<string, OwnerMethod>> = methods;

function walk(schema: TSchema, path: string, visit: (schema: TSchema, path: string) => void): void {
  visit(schema, path);
  for (const [key, each] of Object.entries((schema['properties'] ?? {}) as Record<string, TSchema>))
    walk(each, `${path}.${key}`, visit);
  const { items, anyOf } = schema as { items?: TSchema | TSchema[]; anyOf?: TSchema[] };
  for (const each of [items ?? [], anyOf ?? []].flat()) walk(each, `${path}[]`, visit);
}

function found(schema: TSchema, path: string, wanted: (schema: TSchema) => boolean): string[] {
  const paths: string[] = [];
  walk(schema, path, (each, at) => {
    if (wanted(each)) paths.push(at);
  });
  return paths;
}

const members = (schema: TSchema) => Object.keys((schema as { properties?: object }).properties ?? {});
const required = (schema: TSchema) => (schema as { required?: string[] }).required ?? [];

describe.each(methodNames)('%s', (name) => {
  const method = table[name]!;

  it('is filed under its own name, path and namespace', () => {
    expect(method.method).toBe(name);
    expect(['fleet', 'fleetcutover']).toContain(method.namespace);
    expect(methodPath(method)).toBe(`/requests/${method.namespace}/${name}`);
    expect(method.summary).toMatch(/^[A-Z].*[^.]$/);
  });

  it('has a request and a response that are closed at every level', () => {
    const isOpen = (schema: TSchema) => schema['type'] === 'object' && schema['additionalProperties'] !== false;
    expect(found(method.request, 'request', isOpen)).toEqual([]);
    expect(found(method.response, 'response', isOpen)).toEqual([]);
    expect(method.request['type']).toBe('object');
  });

  it('bounds every list and text of its request, and its bytes', () => {
    const isUnbounded = (schema: TSchema) => {
      if (schema['type'] === 'array') return schema['maxItems'] === undefined;
      if (schema['type'] !== 'string' || schema['const'] !== undefined || schema['maxLength'] !== undefined)
        return false;
      return !/^\^\[[^\]]*\]\{\d+\}\$$/.test((schema as { pattern?: string }).pattern ?? '');
    };
    expect(found(method.request, 'request', isUnbounded)).toEqual([]);
    expect(method.maximumRequestBytes).toBeGreaterThan(0);
    expect(method.maximumRequestBytes).toBeLessThanOrEqual(8_388_608);
  });

  it('asks for everything that it takes, but a dry run', () => {
    const optional = members(method.request).filter((key) => !required(method.request).includes(key));
    expect(optional).toEqual(method.mutation ? ['dryRun'] : []);
  });
});

describe('mutations', () => {
  it.each(mutationNames)('%s carries a mutation id, is an administrator’s, and answers with the audit head', (name) => {
    const { caller, request, response } = table[name]!;
    expect(caller).toBe('administrator');
    expect(members(request)).toEqual(expect.arrayContaining(['mutationId', 'dryRun']));
    expect(required(response)).toEqual(expect.arrayContaining(['replayed', 'current', 'dryRun', 'audit']));
  });

  it('queries carry none, and operators may ask them', () => {
    for (const name of methodNames.filter((each) => !mutationNames.includes(each))) {
      const { caller, request } = table[name]!;
      expect([name, caller]).toEqual([name, 'operator']);
      expect(members(request)).not.toContain('mutationId');
    }
  });

  it('of a cluster’s cutover name the runtime that they are made under', () => {
    for (const name of mutationNames.filter((each) => table[each]!.namespace === 'fleetcutover')) {
      expect([name, required(table[name]!.request)]).toEqual([name, expect.arrayContaining(['clusterId', 'runtime'])]);
    }
  });
});

describe('the batch limit', () => {
  it('holds for each list: 32', () => {
    const { upserts, removals } = methods.prepareFleetCutoverVolumeHandoffs.request.properties;
    expect([upserts.maxItems, removals.maxItems]).toEqual([32, 32]);
  });
});
