import { describe, expect, it } from 'vitest';
import { digestDomain, sealRecord } from '../../src/contract/digest.js';
import { clusterServiceSpecRecord, type IClusterServiceSpec } from '../../src/contract/fleet.js';
import {
  fleetCutoverIngressDesignationRecord,
  type IFleetCutoverIngressDesignation,
} from '../../src/contract/ingress.js';
import { referenceOf } from '../../src/contract/schema.js';
import {
  type DesignationFacts,
  type DesignationRequest,
  launcherSecretId,
  nextDesignation,
  refuseDesignation,
  withLauncherSecret,
} from '../../src/features/ingress/designation.js';
import { nextSpec } from '../../src/features/fleet/spec.js';
import { referenceNamed } from '../support/handoff-set.js';
import { emptySpec } from '../support/pallet-phase.js';

const cluster = { clusterId: 'c', clusterLife: 'life-1' };
const port = { protocol: 'tcp', port: 443, targetPort: 8443 } as const;

function spec(over: Partial<IClusterServiceSpec> = {}): IClusterServiceSpec {
  const { digest: _, ...content } = { ...nextSpec(cluster, 'sv-1', emptySpec, null), ...over };
  return sealRecord(digestDomain('IClusterServiceSpec'), content) as IClusterServiceSpec;
}

function designation(
  current?: IFleetCutoverIngressDesignation,
  over: Partial<Parameters<typeof nextDesignation>[1]> = {},
): IFleetCutoverIngressDesignation {
  return nextDesignation(current, {
    ...cluster,
    serviceId: 'sv-1',
    runtime: referenceNamed('rt-1', 4),
    scope: referenceNamed('sc-1', 2),
    targetSet: referenceNamed('ts-1', 1),
    spec: referenceNamed('ss-1', 2),
    credential: { credentialId: 'il-1', generation: (current?.generation ?? 0) + 1 },
    secretId: 'se-1',
    ...over,
  });
}

const facts: DesignationFacts = {
  service: { state: 'live' },
  spec: spec(),
  specReleased: false,
  newestRelease: null,
  current: undefined,
  firstDesignatedSpec: null,
  nodesWithoutPorts: [],
  nodesWithItsPorts: [],
};
const request: DesignationRequest = {
  serviceId: 'sv-1',
  heldSpec: referenceOf(spec()),
  expectedDesignation: null,
};
const first = designation();
const rotating = { ...request, expectedDesignation: referenceOf(first) };
const designated = { ...facts, current: first, firstDesignatedSpec: 2 };

const codeOf = (asked: DesignationRequest, over: Partial<DesignationFacts>) =>
  refuseDesignation(asked, { ...facts, ...over })?.problem.code ?? 'accepted';

describe('refuseDesignation', () => {
  it('accepts the first designation and a rotation', () => {
    expect(codeOf(request, {})).toBe('accepted');
    expect(codeOf(rotating, designated)).toBe('accepted');
  });

  it.each<[string, Partial<DesignationFacts>]>([
    ['service-unknown', { service: undefined }],
    ['service-retired', { service: { state: 'retired' } }],
    ['spec-stale', { spec: undefined }],
    ['spec-stale', { spec: spec({ generation: 2, predecessor: referenceOf(spec()) }) }],
    ['spec-not-held', { specReleased: true, newestRelease: 1 }],
    ['ports-unknown', { nodesWithoutPorts: ['n1'] }],
    ['ports-observed', { nodesWithItsPorts: ['n1'] }],
  ])('says %s of the first designation', (code, over) => {
    expect(codeOf(request, over)).toBe(code);
  });

  it('says ports-configured and spec-refused of a spec that cannot be an ingress’s', () => {
    const published = spec({ publishedPorts: [port] });
    expect(codeOf({ ...request, heldSpec: referenceOf(published) }, { spec: published })).toBe('ports-configured');
    const secretInputs = Array.from({ length: 64 }, (_, index) => ({ name: `s${index}`, secretId: 's', version: 1 }));
    const full = spec({ secretInputs });
    expect(codeOf({ ...request, heldSpec: referenceOf(full) }, { spec: full })).toBe('spec-refused');
    const replaced = spec({
      secretInputs: [...secretInputs.slice(1), { name: 'launcher-bearer', secretId: 's', version: 1 }],
    });
    expect(codeOf({ ...request, heldSpec: referenceOf(replaced) }, { spec: replaced })).toBe('accepted');
  });

  it('answers null against a designation with the current reference, and so every other one', () => {
    const second = designation(first);
    for (const expectedDesignation of [null, referenceOf(second), { ...referenceOf(first), generation: 9 }]) {
      expect(refuseDesignation({ ...request, expectedDesignation }, designated)?.problem).toEqual({
        code: 'designation-stale',
        expectation: 'expectedDesignation',
        current: referenceOf(first),
        mutationOutcome: 'not-applied',
        retrySafe: false,
      });
    }
    expect(refuseDesignation(rotating, facts)?.problem).toMatchObject({ code: 'designation-stale', current: null });
    // Of another service, too: what stands is told before whose it is.
    expect(codeOf({ ...request, serviceId: 'sv-2' }, designated)).toBe('designation-stale');
    expect(codeOf({ ...rotating, serviceId: 'sv-2' }, designated)).toBe('designation-other-service');
  });

  it('does not ask a rotation for ports once a spec was released that a designation had named', () => {
    const published = spec({ publishedPorts: [port] });
    const asked = { ...rotating, heldSpec: referenceOf(published) };
    const ports = { spec: published, nodesWithoutPorts: ['n1'], nodesWithItsPorts: ['n2'] };
    for (const newestRelease of [2, 3, 9])
      expect(codeOf(asked, { ...designated, ...ports, newestRelease })).toBe('accepted');
    expect(codeOf(asked, { ...designated, ...ports, newestRelease: 2, specReleased: true })).toBe('accepted');
    // Released before it was designated, as something else.
    expect(codeOf(asked, { ...designated, ...ports, newestRelease: 1 })).toBe('ports-configured');
    expect(codeOf({ ...asked, expectedDesignation: null }, { ...ports, newestRelease: 1 })).toBe('ports-configured');
    expect(codeOf(asked, { ...designated, ...ports })).toBe('ports-configured');
  });

  it('names at most ten nodes', () => {
    const nodes = Array.from({ length: 4096 }, (_, index) => `n${index}`);
    const { detail } = refuseDesignation(request, { ...facts, nodesWithoutPorts: nodes })!.problem;
    expect(detail).toBe(`no current port report of ${nodes.slice(0, 10).join(', ')}`);
  });
});

describe('the spec with the launcher’s secret', () => {
  it('cites the version and keeps everything else', () => {
    const before = spec({ secretInputs: [{ name: 'other', secretId: 'se-9', version: 4 }], placement: ['n1'] });
    const once = nextSpec(cluster, 'sv-1', withLauncherSecret(before, 'se-1', 1), before);
    expect(clusterServiceSpecRecord.validate(once)).toEqual([]);
    expect(once.secretInputs).toEqual([
      { name: 'launcher-bearer', secretId: 'se-1', version: 1 },
      { name: 'other', secretId: 'se-9', version: 4 },
    ]);
    const twice = nextSpec(cluster, 'sv-1', withLauncherSecret(once, 'se-1', 2), once);
    expect(twice.secretInputs.map((input) => input.version)).toEqual([2, 4]);
    expect([twice.generation, twice.predecessor]).toEqual([3, referenceOf(once)]);
    expect([twice.placement, twice.id]).toEqual([before.placement, before.id]);
  });

  it('has an id of its own for each credential', () => {
    const ids = [
      launcherSecretId('life-1', 'il-1'),
      launcherSecretId('life-1', 'il-2'),
      launcherSecretId('l2', 'il-1'),
    ];
    expect(new Set(ids).size).toBe(3);
    expect(launcherSecretId('life-1', 'il-1')).toBe(ids[0]);
  });
});

describe('nextDesignation', () => {
  it('seals a gapless chain of one id', () => {
    const second = designation(first, { spec: referenceNamed('ss-1', 3) });
    for (const each of [first, second]) expect(fleetCutoverIngressDesignationRecord.validate(each)).toEqual([]);
    expect([first.generation, first.predecessor]).toEqual([1, null]);
    expect([second.id, second.generation, second.predecessor]).toEqual([first.id, 2, referenceOf(first)]);
    expect(second.secret).toEqual({ secretId: 'se-1', version: second.credential.generation });
    expect(Object.keys(first)).not.toContain('clusterLife');
  });
});
