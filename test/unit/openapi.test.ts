/** The description of the API: valid, clean by a linter's rules, and of exactly what there is. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { Validator } from '@seriousme/openapi-schema-validator';
import { beforeAll, describe, expect, it } from 'vitest';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { methodPath, type OwnerMethod } from '../../src/contract/method.js';
import { methodNames, methods } from '../../src/contract/methods.js';
import { apiVersion, openApiDocument, type OpenApiDocument, openApiText } from '../../src/contract/openapi.js';
import { problemCatalogue, type TProblemCode } from '../../src/contract/problems.js';

let document: OpenApiDocument;
beforeAll(() => {
  document = openApiDocument();
});

const operationsOf = (described: OpenApiDocument) =>
  Object.entries(described.paths).flatMap(([path, verbs]) =>
    Object.entries(verbs).map(([verb, operation]) => ({ path, verb, operation })),
  );

/** The codes of an operation's problems, through its references. */
function codesOf(name: string): string[] {
  const found = operationsOf(document).find(({ operation }) => operation.operationId === name);
  return Object.values(found?.operation.responses ?? {}).flatMap((response) => {
    const reference = response['$ref'] as string | undefined;
    return reference === undefined ? [] : (reference.split('/').at(-1) ?? '').split('.');
  });
}

describe('the document', () => {
  it('is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(JSON.parse(openApiText()) as Record<string, unknown>);
    expect(errors ?? []).toEqual([]);
    expect([valid, validator.version]).toEqual([true, '3.1']);
  });

  it('is clean by the linter’s recommended rules', async () => {
    // Asking for health can’t be refused by what is asked.
    const rules = { 'operation-4xx-response': 'off' } as const;
    const config = await createConfig({ extends: ['recommended-strict'], rules });
    const problems = await lintFromString({ source: openApiText(), absoluteRef: 'openapi.json', config });
    expect(problems.map(({ ruleId, message, location }) => [ruleId, message, location[0]?.pointer])).toEqual([]);
  });

  it('is found faulty by both where a reference leads nowhere', async () => {
    const broken = openApiText().replace('"#/components/schemas/FleetCluster"', '"#/components/schemas/Nothing"');
    const config = await createConfig({ extends: ['recommended-strict'] });
    const problems = await lintFromString({ source: broken, absoluteRef: 'openapi.json', config });
    expect(problems.map(({ ruleId }) => ruleId)).toContain('no-unresolved-refs');
    const { paths: _, ...pathless } = JSON.parse(openApiText()) as { paths: unknown };
    expect((await new Validator().validate({ ...pathless, openapi: '3.1' })).valid).toBe(false);
  });

  it('has every method of the table and every endpoint, and no other', () => {
    const spark = Object.values(sparkSwarmNodeContracts).flatMap((each) => (typeof each === 'number' ? [] : [each]));
    const expected = [
      ...methodNames.map((name) => `post ${methodPath(methods[name])}`),
      ...spark.map(({ endpoint }) => `post ${endpoint}`),
      'post /typedrequest',
      'get /health',
      'get /readiness',
    ];
    expect(operationsOf(document).map(({ path, verb }) => `${verb} ${path}`)).toEqual(expected);
  });

  it('says of each method who may call it and how many bytes it takes', () => {
    for (const name of methodNames) {
      const method: OwnerMethod = methods[name];
      expect(document.paths[methodPath(method)]?.['post']).toMatchObject({
        operationId: name,
        summary: method.summary,
        security: [{ bearer: [] }],
        'x-caller': method.caller,
        'x-maximum-request-bytes': method.maximumRequestBytes,
      });
    }
  });

  it('tells of each method what it is refused for, each code once and under its own status', () => {
    for (const name of methodNames) {
      const codes = codesOf(name);
      expect(codes).toEqual(expect.arrayContaining(['body-schema', 'credential-refused', 'rate-limited', 'internal']));
      expect(new Set(codes).size).toBe(codes.length);
      expect(codes.includes('role-refused')).toBe(methods[name].caller === 'administrator');
      expect(codes.includes('mutation-id-reused')).toBe(methods[name].mutation);
    }
    for (const [name, response] of Object.entries(document.components.responses)) {
      const statuses = new Set(name.split('.').map((code) => problemCatalogue[code as TProblemCode].status));
      expect(statuses.size).toBe(1);
      expect(JSON.stringify(response)).toContain(`"status":{"const":${[...statuses][0]}}`);
    }
    expect(codesOf('advanceFleetCutoverPhase')).toEqual(expect.arrayContaining(['gate-unmet', 'runtime-stale']));
    expect(codesOf('swarmObservation')).toEqual(expect.arrayContaining(['protocol-unsupported', 'sequence-stale']));
  });

  it('spells no large object out twice: what is shared has a name', () => {
    const seen = new Map<string, number>();
    const visit = (value: unknown): void => {
      if (typeof value !== 'object' || value === null) return;
      const text = JSON.stringify(value);
      const inlined = 'properties' in value && 'type' in value && text.length > 400;
      if (inlined) seen.set(text, (seen.get(text) ?? 0) + 1);
      Object.values(value).forEach(visit);
    };
    // A method's request and response are its own, also where two methods' are alike.
    const own = new Set(Object.keys(document.components.schemas).filter((name) => /(Request|Response)$/.test(name)));
    for (const [name, schema] of Object.entries(document.components.schemas)) {
      if (own.has(name)) visit(schema['properties']);
      else visit(schema);
    }
    expect([...seen].filter(([, count]) => count > 1)).toEqual([]);
    expect(document.components.schemas).toHaveProperty('FleetCutoverAcceptedEvidenceReference');
    expect(openApiText()).not.toContain('"anyOf": []');
  });

  it('has the package’s version, and is the same each time it is made', () => {
    const text = readFileSync(join(import.meta.dirname, '..', '..', 'package.json'), 'utf8');
    expect(apiVersion).toBe((JSON.parse(text) as { version: string }).version);
    expect(openApiText()).toBe(openApiText());
  });
});
