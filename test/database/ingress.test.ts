import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { methods } from '../../src/contract/methods.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { keyStates, prepareFleetCutoverIngress, resealAll } from '../../src/features/ingress/operations.js';
import type { KeyRing } from '../../src/features/ingress/sealing.js';
import { createLogger } from '../../src/http/request-log.js';
import { ResponseSchemaError, writeOwnerResponse } from '../../src/http/owner-body.js';
import { demandKeys } from '../../src/key-ring.js';
import { Secret } from '../../src/secret.js';
import { Service } from '../../src/service.js';
import { cutover } from '../support/cutover.js';
import { referenceNamed } from '../support/handoff-set.js';
import { type IngressStage, ingressStage, launcherLogin } from '../support/pallet-phase.js';
import { type Answer, mutationId, startService, type TestService } from '../support/service.js';
import { container } from '../support/snapshots.js';
import { dumpTables, tamper } from '../support/table-dump.js';

const newKey = (keyId: string) => ({ keyId, key: new Secret(randomBytes(32).toString('base64')) });
const ring: KeyRing = [newKey('k1')];
let service: TestService;
/** Everything was reported; nothing is designated. */
let open: IngressStage;
/** There is a designation; tests that only rotate it share it. */
let designated: IngressStage;
let made = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn', keyRing: ring });
  open = await ingressStage(service, 'open');
  designated = await ingressStage(service, 'designated');
});
afterAll(() => service.close());

const newStage = (options: { reported?: boolean } = {}) => ingressStage(service, `stage-${(made += 1)}`, options);
const httpsOf = (owner: { kind: 'pallet-service'; serviceId: string }) => ({
  protocol: 'tcp' as const,
  port: 443,
  owner,
});
const refusal = ({ status, body }: Answer<'prepareFleetCutoverIngress'>) =>
  status === 200 ? 'accepted' : `${status} ${body.code}`;

/** Refused with the code, and nothing is written. */
async function expectRefused(stage: IngressStage, over: Parameters<IngressStage['prepare']>[0], expected: string) {
  const before = await dumpTables(service.database);
  const answer = await stage.prepare(over);
  expect(refusal(answer)).toBe(expected);
  expect(answer.body.mutationOutcome).toBe('not-applied');
  expect(await dumpTables(service.database)).toEqual(before);
  return answer.body;
}

describe('the first designation', () => {
  it('cites the held spec, which cites the secret; the answer shows neither bearer nor hash', async () => {
    const stage = await newStage();
    const request = await stage.request();
    const { designation, spec, ...answer } = await service.done('prepareFleetCutoverIngress', request);
    const { clusterId, serviceId } = stage;
    const held = await stage.spec();
    expect(answer).toMatchObject({ replayed: false, current: true, dryRun: false, audit: { chainId: clusterId } });
    expect(designation).toMatchObject({ generation: 1, clusterId, serviceId, predecessor: null });
    expect(designation).toMatchObject({ runtime: request.runtime, scope: request.scope, targetSet: request.targetSet });
    expect([designation.spec, held.state]).toEqual([referenceOf(held.spec), 'held']);
    expect(spec).toEqual(designation.spec);
    expect(held.spec.predecessor).toEqual(request.heldSpec);
    expect(held.spec.secretInputs).toEqual([{ name: 'launcher-bearer', ...designation.secret }]);
    expect(designation.secret.version).toBe(designation.credential.generation);
    const read = await service.done('readFleetCutoverIngressDesignation', { clusterId, designation: null });
    expect(read).toEqual({ designation, current: true });

    const bearer = await stage.bearer(ring, designation);
    expect(bearer.reveal()).toMatch(/^[A-Za-z0-9_-]{43}$/);
    const { credentialId } = designation.credential;
    expect(await launcherLogin(service, credentialId, bearer)).toBe(1);
    expect(await launcherLogin(service, credentialId, new Secret('A'.repeat(43)))).toBe('credential-refused');
    expect(await launcherLogin(service, 'il-unknown', bearer)).toBe('credential-refused');
    expect(await launcherLogin(service, '\0', bearer)).toBe('credential-refused');
    expect(await launcherLogin(service, credentialId, new Secret('short'))).toBe('credential-refused');
  });

  it('is done by a dry run in appearance only', async () => {
    const before = await dumpTables(service.database);
    const answer = await open.prepare({ dryRun: true });
    expect([refusal(answer), answer.body.dryRun, answer.body.audit]).toEqual(['accepted', true, null]);
    expect(await dumpTables(service.database)).toEqual(before);
  });

  it('is refused where an expectation is not what is current, with what is', async () => {
    const current = await open.request();
    const other = (reference: Reference) => ({ ...reference, digest: referenceNamed('x', 1).digest });
    for (const [expectation, over, code] of [
      ['runtime', { runtime: other(current.runtime) }, '409 runtime-stale'],
      ['scope', { scope: other(current.scope) }, '409 scope-stale'],
      ['targetSet', { targetSet: other(current.targetSet) }, '409 target-set-stale'],
      ['heldSpec', { heldSpec: other(current.heldSpec) }, '409 spec-stale'],
    ] as const) {
      const problem = await expectRefused(open, over, code);
      expect(problem).toMatchObject({ expectation, current: current[expectation], retrySafe: false });
    }
    const designation = await expectRefused(
      open,
      { expectedDesignation: referenceNamed('id-1', 1) },
      '409 designation-stale',
    );
    expect(designation).toMatchObject({ expectation: 'expectedDesignation', current: null });
  });

  it('is refused in every phase but the last, and where its runtime is not any more', async () => {
    const stage = open;
    const [earlier] = (
      await service.database.owner.query<Reference>(
        `select record::json ->> 'id' as id, generation::int, digest from control.runtime_revisions where cluster_id = $1 and phase = 'switching'`,
        [stage.clusterId],
      )
    ).rows;
    await expectRefused(stage, { runtime: earlier! }, '409 runtime-stale');
    const early = await cutover(service, 'early', { volumes: [1, 1] });
    for (const phase of ['draining', 'switching'] as const) {
      await early.bringTo(phase);
      const { scope, targetSet } = await early.fleet.state();
      const over = { clusterId: 'early', runtime: await early.runtime(), scope: scope!, targetSet: targetSet! };
      await expectRefused(open, over, '422 phase-refused');
    }
  });

  it('is refused to others: another organization, an operator, and for its services', async () => {
    const stranger = await service.organization('strangers');
    const answer = await open.prepare({}, stranger);
    expect(refusal(answer)).toBe('404 cluster-unknown');
    const theirs = await service.done('createService', { mutationId: mutationId(), name: 'theirs' }, stranger);
    const request = { ...(await open.request()), serviceId: theirs.service.serviceId };
    expect(refusal(await service.call('prepareFleetCutoverIngress', request))).toBe('404 service-unknown');
    const { secrets } = await service.done('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: 'watcher',
      role: 'operator',
    });
    expect(refusal(await open.prepare({}, secrets[0]!.secret))).toBe('403 role-refused');
    const read = { clusterId: open.clusterId, designation: null };
    expect((await service.call('readFleetCutoverIngressDesignation', read, stranger)).body.code).toBe(
      'cluster-unknown',
    );
    const none = await service.call('readFleetCutoverIngressDesignation', read, secrets[0]!.secret);
    expect([none.status, none.body.code]).toEqual([404, 'record-unknown']);
  });

  it('is refused for a service that is retired, has no spec, or whose spec is released, publishes, or is full', async () => {
    const bare = await service.done('createService', { mutationId: mutationId(), name: 'bare' });
    const withoutSpec = { ...(await open.request()), serviceId: bare.service.serviceId };
    expect((await service.call('prepareFleetCutoverIngress', withoutSpec)).body).toMatchObject({
      code: 'spec-stale',
      current: null,
    });
    const retired = await open.another('retired');
    await service.done('retireService', { mutationId: mutationId(), serviceId: retired });
    await expectRefused(open, { serviceId: retired }, '422 service-retired');
    const released = await open.another('released');
    await open.release((await open.spec(released)).spec, released);
    await expectRefused(open, { serviceId: released }, '422 spec-not-held');
    // Held again, but the old release is no reason to overlook the ports.
    await open.putSpec({ publishedPorts: [{ protocol: 'tcp', port: 80, targetPort: 80 }] }, released);
    await expectRefused(open, { serviceId: released }, '422 ports-configured');
    const full = await open.another('full');
    const secretInputs = Array.from({ length: 64 }, (_, at) => ({ name: `s${at}`, secretId: 'se', version: 1 }));
    await open.putSpec({ secretInputs }, full);
    await expectRefused(open, { serviceId: full }, '422 spec-refused');
  });

  it('is refused where nothing can be sealed', async () => {
    const actor = {
      kind: 'administrator',
      credentialId: 'ad-1',
      principalId: 'alice',
      organizationId: service.organizationId,
      role: 'administrator',
    } as const;
    const request = await open.request();
    const refused = await prepareFleetCutoverIngress([], service.deps, actor, request);
    expect(refused).toMatchObject({ problem: { code: 'sealing-unavailable', mutationOutcome: 'not-applied' } });
    expect(await open.designation()).toBeNull();
  });
});

describe('ports', () => {
  it('are unknown until every target node has reported whole under the current runtime, with a ready Pallet', async () => {
    const stage = await newStage({ reported: false });
    const { cut } = stage;
    const unknown = async (...nodes: number[]) => {
      const problem = await expectRefused(stage, {}, '422 ports-unknown');
      expect(problem.detail).toBe(`no current port report of ${nodes.map((node) => cut.nodeIds[node]).join(', ')}`);
    };
    await unknown(0, 1);
    await cut.report(0);
    await unknown(1);
    // Begun before the phase.
    const [before] = (
      await service.database.owner.query<Reference>(
        `select record::json ->> 'id' as id, generation::int, digest from control.runtime_revisions where cluster_id = $1 and generation = 3`,
        [stage.clusterId],
      )
    ).rows;
    await cut.report(1, before);
    await unknown(1);
    const incomplete = { complete: false, runtime: await cut.runtime(), reason: 'engine-error', counts: null } as const;
    await cut.fleet.reported(cut.nodeIds[1]!, { local: incomplete });
    await unknown(1);
    cut.world.nodes[1]!.palletReady = false;
    await cut.report(1);
    await unknown(1);
    const withoutPallet = { ...(await cut.local(1)), pallet: null };
    await cut.fleet.reported(cut.nodeIds[1]!, { local: withoutPallet });
    await unknown(1);
    cut.world.nodes[1]!.palletReady = true;
    await cut.report(1);
    expect(refusal(await stage.prepare({ dryRun: true }))).toBe('accepted');
    await cut.fleet.reported(cut.nodeIds[1]!, { local: incomplete });
    await unknown(1);
  });

  it('are unknown of a node that is quarantined or revoked, and nobody’s of one that is written off', async () => {
    const stage = await newStage();
    const { cut, clusterId } = stage;
    const nodeId = cut.nodeIds[1]!;
    // Two reporters are live: the first session comes back after another has replaced it.
    await cut.fleet.report(nodeId, { local: await cut.local(1) }, { session: 'rs-clone' });
    await cut.report(1);
    expect((await cut.fleet.node(nodeId)).state).toBe('quarantined');
    await expectRefused(stage, {}, '422 ports-unknown');
    const { secrets } = await service.done('releaseNodeQuarantine', { mutationId: mutationId(), clusterId, nodeId });
    cut.fleet.setToken(nodeId, secrets[0]!.secret);
    cut.fleet.restart(nodeId);
    await cut.report(1);
    expect(refusal(await stage.prepare({ dryRun: true }))).toBe('accepted');
    await service.done('revokeNode', { mutationId: mutationId(), clusterId, nodeId });
    await expectRefused(stage, {}, '422 ports-unknown');
    const writeOff = {
      clusterId,
      runtime: await cut.runtime(),
      nodeId,
      reason: 'it burned',
      verified: 'seen',
    };
    const proposed = await service.done('writeOffNode', { mutationId: mutationId(), ...writeOff, proposal: null });
    const second = await service.done('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: `second-${clusterId}`,
      role: 'administrator',
    });
    await expectRefused(stage, {}, '422 ports-unknown');
    await service.done(
      'writeOffNode',
      { mutationId: mutationId(), ...writeOff, proposal: referenceOf(proposed.writeOff) },
      second.secrets[0]!.secret,
    );
    expect((await cut.fleet.node(nodeId)).state).toBe('written-off');
    expect(refusal(await stage.prepare({ dryRun: true }))).toBe('accepted');
  });

  it('of the service under Pallet are refused; those of the legacy ingress and of others stay', async () => {
    const stage = await newStage();
    const { cut, serviceId } = stage;
    await stage.reportPorts(1, [
      { protocol: 'tcp', port: 80, owner: { kind: 'swarm-service', swarmServiceId: 'edge' } },
      { protocol: 'tcp', port: 443, owner: { kind: 'swarm-service', swarmServiceId: 'edge' } },
      { protocol: 'tcp', port: 22, owner: { kind: 'unknown' } },
      { protocol: 'tcp', port: 5000, owner: { kind: 'container', containerId: 'c-1' } },
      { protocol: 'tcp', port: 6000, owner: { kind: 'pallet-service', serviceId: 'sv-other' } },
    ]);
    expect(refusal(await stage.prepare({ dryRun: true }))).toBe('accepted');
    for (const node of [0, 1]) {
      await stage.reportPorts(node, [
        { protocol: 'udp', port: 53, owner: { kind: 'pallet-service', serviceId: 'sv-other' } },
        httpsOf({ kind: 'pallet-service', serviceId }),
      ]);
      const problem = await expectRefused(stage, {}, '422 ports-observed');
      expect(problem.detail).toBe(`the service holds ports on ${cut.nodeIds[node]}`);
      await cut.report(node);
    }
    // A container that is called as the service is does not make a port its own.
    cut.world.nodes[0]!.containers.push(container(serviceId));
    await cut.report(0);
    expect(refusal(await stage.prepare())).toBe('accepted');
  });
});

describe('an existing designation', () => {
  it('is answered to null, also with a fresh mutation id, and to every other service', async () => {
    const stage = designated;
    const { designation } = await stage.prepared();
    const other = await stage.another(`${stage.clusterId}-other`);
    for (const over of [{ expectedDesignation: null }, { expectedDesignation: null, serviceId: other }]) {
      const problem = await expectRefused(stage, over, '409 designation-stale');
      expect(problem).toMatchObject({ expectation: 'expectedDesignation', current: referenceOf(designation) });
    }
    const problem = await expectRefused(stage, { serviceId: other }, '422 designation-other-service');
    expect(problem.current).toEqual(referenceOf(designation));
  });

  it('is rotated five times in a row; exactly the newest and the last used generation are accepted', async () => {
    const stage = await newStage();
    const first = (await stage.prepared()).designation;
    const { credentialId } = first.credential;
    const login = (bearer: Secret) => launcherLogin(service, credentialId, bearer);
    const bearers = [await stage.bearer(ring, first)];
    let used = 0;
    expect(await login(bearers[0]!)).toBe(1);
    for (let round = 1; round <= 5; round += 1) {
      const previous = await stage.designation();
      const { designation } = await stage.prepared();
      expect(designation).toMatchObject({ generation: round + 1, predecessor: referenceOf(previous!) });
      expect(designation.credential).toEqual({ credentialId, generation: round + 1 });
      expect(designation.secret).toEqual({ secretId: first.secret.secretId, version: round + 1 });
      bearers.push(await stage.bearer(ring, designation));
      const { spec } = await stage.spec();
      expect([spec.generation, spec.secretInputs[0]?.version]).toEqual([round + 2, round + 1]);
      // Whoever holds the generation that was used goes on, whatever comes between; all others are refused.
      for (const [index, bearer] of bearers.entries()) {
        if (index === round) continue;
        expect(await login(bearer)).toBe(index === used ? used + 1 : 'credential-refused');
      }
      // Every second generation is lost and never used.
      if (round % 2 === 0) continue;
      expect(await login(bearers[round]!)).toBe(round + 1);
      used = round;
      for (const [index, bearer] of bearers.entries())
        expect(await login(bearer)).toBe(index === used ? used + 1 : 'credential-refused');
    }
    expect(new Set(bearers.map((bearer) => bearer.reveal())).size).toBe(6);
    const { credentials } = await service.done('listCredentials', {
      clusterId: stage.clusterId,
      cursor: null,
      limit: 1000,
    });
    expect(credentials.find((each) => each.credentialId === credentialId)).toEqual({
      credentialId,
      kind: 'ingress-launcher',
      subjectId: stage.serviceId,
      role: null,
      newestGeneration: 6,
      usedGeneration: 6,
      revoked: false,
    });
  });

  it('is rotated whatever the spec became, and cites the secret again', async () => {
    const stage = designated;
    const { designation } = await stage.prepared();
    await stage.putSpec({ secretInputs: [], imageDigest: `sha256:${'f'.repeat(64)}` });
    expect((await stage.designation())?.spec).toEqual(designation.spec);
    const { spec } = (await stage.prepared()).designation;
    const held = await stage.spec();
    expect(referenceOf(held.spec)).toEqual(spec);
    expect(held.spec.imageDigest).toBe(`sha256:${'f'.repeat(64)}`);
    expect(held.spec.secretInputs).toEqual([
      { ...designation.secret, name: 'launcher-bearer', version: designation.secret.version + 1 },
    ]);
  });

  it('keeps its revisions, which can be pinned', async () => {
    const stage = await newStage();
    const { clusterId } = stage;
    const first = (await stage.prepared()).designation;
    const second = (await stage.prepared()).designation;
    const read = (designation: Reference | null) =>
      service.call('readFleetCutoverIngressDesignation', { clusterId, designation });
    expect((await read(referenceOf(first))).body).toEqual({ designation: first, current: false });
    expect((await read(referenceOf(second))).body).toEqual({ designation: second, current: true });
    expect((await read({ ...referenceOf(first), digest: second.digest })).body.code).toBe('pin-unknown');
    expect((await read({ ...referenceOf(first), generation: 9 })).body.code).toBe('pin-unknown');
    await tamper(
      service.database,
      `update control.ingress_designation_revisions set record = replace(record, '"version":2', '"version":3') where cluster_id = $1`,
      [clusterId],
    );
    expect((await read(null)).body.code).toBe('record-corrupt');
  });
});

describe('a released spec', () => {
  it('gets a new held revision by a rotation, whatever ports the service has by then', async () => {
    const stage = await newStage();
    const { serviceId } = stage;
    const { designation } = await stage.prepared();
    await stage.reportPorts(0, [httpsOf({ kind: 'pallet-service', serviceId })]);
    await expectRefused(stage, {}, '422 ports-observed');
    await stage.release(designation.spec);
    expect((await stage.spec()).state).toBe('released');
    const rotated = (await stage.prepared()).designation;
    const held = await stage.spec();
    expect([held.state, referenceOf(held.spec)]).toEqual(['held', rotated.spec]);
    expect(rotated.spec.generation).toBe(designation.spec.generation + 1);
    // Held again, and ports are still its own; now its spec says so, too.
    await stage.putSpec({ publishedPorts: [{ protocol: 'tcp', port: 443, targetPort: 8443 }] });
    const again = (await stage.prepared()).designation;
    expect((await stage.spec()).spec.publishedPorts).toHaveLength(1);
    expect(again.credential.generation).toBe(3);
    const { rows } = await service.database.owner.query(
      'select generation::int from control.service_spec_releases where cluster_id = $1 and service_id = $2',
      [stage.clusterId, serviceId],
    );
    expect(rows).toEqual([{ generation: designation.spec.generation }]);
  });
});

describe('a replay', () => {
  it('tells what was recorded, renews nothing, and says when it is superseded', async () => {
    const stage = designated;
    const request = await stage.request();
    const first = await service.done('prepareFleetCutoverIngress', request);
    const unchanged = await dumpTables(service.database);
    expect(await service.done('prepareFleetCutoverIngress', request)).toEqual({ ...first, replayed: true });
    expect(await dumpTables(service.database)).toEqual(unchanged);
    const rotation = await stage.request();
    const second = await service.done('prepareFleetCutoverIngress', rotation);
    const before = await dumpTables(service.database, ['refusal_counts']);
    const replayed = await service.done('prepareFleetCutoverIngress', request);
    expect(replayed).toEqual({ ...first, replayed: true, current: false });
    expect(await service.done('prepareFleetCutoverIngress', rotation)).toEqual({ ...second, replayed: true });
    // It resurrects no generation: the credential is as the rotation left it.
    expect(await dumpTables(service.database, ['refusal_counts'])).toEqual(before);
    for (const over of [{ serviceId: 'sv-other' }, { heldSpec: request.heldSpec }, { expectedDesignation: null }]) {
      const used = { ...rotation, ...over };
      expect((await service.call('prepareFleetCutoverIngress', used)).body.code).toBe('mutation-id-reused');
    }
    const another = {
      mutationId: request.mutationId,
      clusterId: stage.clusterId,
      runtime: request.runtime,
      expectedDesignation: referenceOf(second.designation),
    };
    expect((await service.call('revokeFleetCutoverIngressCredential', another)).body.code).toBe('mutation-id-reused');
  });

  it('of a refused request is a request: it may be sent again', async () => {
    const stage = await newStage({ reported: false });
    const request = await stage.request();
    expect((await service.call('prepareFleetCutoverIngress', request)).body.code).toBe('ports-unknown');
    await stage.cut.reportAll();
    expect((await service.done('prepareFleetCutoverIngress', request)).replayed).toBe(false);
  });
});

describe('revokeFleetCutoverIngressCredential', () => {
  it('ends all generations at once, with an audit row of its own; a rotation issues another credential', async () => {
    const stage = await newStage();
    const { clusterId, serviceId } = stage;
    const first = (await stage.prepared()).designation;
    const used = await stage.bearer(ring, first);
    const { credentialId } = first.credential;
    expect(await launcherLogin(service, credentialId, used)).toBe(1);
    const second = (await stage.prepared()).designation;
    const newest = await stage.bearer(ring, second);

    const stale = await stage.revoke(referenceOf(first));
    expect([stale.status, stale.body]).toMatchObject([
      409,
      { code: 'designation-stale', current: referenceOf(second), mutationOutcome: 'not-applied' },
    ]);
    const runtime = await stage.cut.runtime();
    const request = { mutationId: mutationId(), clusterId, runtime, expectedDesignation: referenceOf(second) };
    const earlier = await service.call('revokeFleetCutoverIngressCredential', {
      ...request,
      runtime: { ...runtime, generation: 3 },
    });
    expect([earlier.status, earlier.body.code, earlier.body.current]).toEqual([409, 'runtime-stale', runtime]);
    const dry = await service.done('revokeFleetCutoverIngressCredential', { ...request, dryRun: true });
    expect([dry.credential.revoked, await launcherLogin(service, credentialId, used)]).toEqual([true, 1]);
    const revoked = await service.done('revokeFleetCutoverIngressCredential', request);
    expect(revoked.credential).toMatchObject({
      credentialId,
      subjectId: serviceId,
      revoked: true,
      newestGeneration: 2,
    });
    for (const bearer of [used, newest])
      expect(await launcherLogin(service, credentialId, bearer)).toBe('credential-refused');
    expect(await service.done('revokeFleetCutoverIngressCredential', request)).toEqual({ ...revoked, replayed: true });
    expect((await stage.revoke()).body.credential).toEqual(revoked.credential);
    const { rows } = await service.database.owner.query(
      `select method, seq = $2 as named from control.audit_rows where chain_id = $1 order by seq desc limit 2`,
      [clusterId, revoked.audit?.seq],
    );
    expect(rows.map((row) => row.method)).toEqual(Array(2).fill('revokeFleetCutoverIngressCredential'));
    expect(rows[1].named).toBe(true);

    const third = (await stage.prepared()).designation;
    expect(third.credential.credentialId).not.toBe(credentialId);
    expect([third.credential.generation, third.secret.version]).toEqual([1, 1]);
    expect(third.secret.secretId).not.toBe(second.secret.secretId);
    expect(third.predecessor).toEqual(referenceOf(second));
    const bearer = await stage.bearer(ring, third);
    expect(await launcherLogin(service, third.credential.credentialId, bearer)).toBe(1);
    expect(await launcherLogin(service, credentialId, bearer)).toBe('credential-refused');
    for (const old of [used, newest]) {
      expect(await launcherLogin(service, credentialId, old)).toBe('credential-refused');
      expect(await launcherLogin(service, third.credential.credentialId, old)).toBe('credential-refused');
    }
    // The replay of a revocation of the old one revokes nothing new.
    expect((await service.done('revokeFleetCutoverIngressCredential', request)).replayed).toBe(true);
    expect(await launcherLogin(service, third.credential.credentialId, bearer)).toBe(1);
  });

  it('wants a designation, and works for a service that is retired', async () => {
    const none = await open.revoke(referenceNamed('id-1', 1));
    expect([none.status, none.body.code, none.body.current]).toEqual([409, 'designation-stale', null]);
    const stage = await newStage();
    await stage.prepared();
    await service.done('retireService', { mutationId: mutationId(), serviceId: stage.serviceId });
    expect(refusal(await stage.prepare())).toBe('422 service-retired');
    expect((await stage.revoke()).status).toBe(200);
  });
});

describe('keys', () => {
  let own: TestService;
  let stage: IngressStage;
  beforeAll(async () => {
    own = await startService({ logLevel: 'warn', keyRing: ring });
    stage = await ingressStage(own, 'keys');
  });
  afterAll(() => own.close());

  it('that are missing, or are others, keep the service from starting', async () => {
    await stage.prepared();
    const start = (keys: Secret | null) => {
      const { serviceUrl, ownerUrl } = own.database;
      const started = new Service(
        {
          database: { kind: 'external', serviceUrl, ownerUrl },
          host: '127.0.0.1',
          port: 0,
          logLevel: 'silent',
          poolSize: 2,
          statementTimeoutMs: 15_000,
          lockTimeoutMs: 5_000,
          docs: true,
          keys: keys === null ? null : { kind: 'environment', keys },
          trustedProxies: [],
        },
        createLogger('silent'),
      );
      return started.start().finally(() => started.stop());
    };
    const line = (key: KeyRing[number]) => new Secret(`${key.keyId}:${key.key.reveal()}`);
    await expect(start(null)).rejects.toThrow('secrets are sealed under k1');
    await expect(start(line(newKey('k2')))).rejects.toThrow('secrets are sealed under k1');
    await expect(start(line(newKey('k1')))).rejects.toThrow('k1 does not open');
    await expect(start(line(ring[0]!))).resolves.toMatch(/^http:/);
  });

  it('seal anew under the first one, all that is there, and the old one may go', async () => {
    const designations = [(await stage.designation())!, (await stage.prepared()).designation];
    const bearers = await Promise.all(designations.map((each) => stage.bearer(ring, each)));
    const next: KeyRing = [newKey('k2'), ...ring];
    expect(await keyStates(own.deps, next)).toEqual([{ keyId: 'k1', state: 'opens' }]);
    await expect(demandKeys(own.deps, [next[0]!])).rejects.toThrow('secrets are sealed under k1');
    await expect(resealAll(own.deps, [])).rejects.toThrow('no key-encryption key');
    const untouched = await dumpTables(own.database, []);
    await expect(resealAll(own.deps, [newKey('k2')])).rejects.toThrow('k1 is not configured');
    await expect(resealAll(own.deps, [newKey('k2'), newKey('k1')])).rejects.toThrow('k1 does not open');
    expect(await dumpTables(own.database, [])).toEqual(untouched);
    expect(await resealAll(own.deps, next)).toBe(2);
    expect(await resealAll(own.deps, next)).toBe(0);
    await expect(demandKeys(own.deps, [next[0]!])).resolves.toBeUndefined();
    const opened = await Promise.all(designations.map((each) => stage.bearer([next[0]!], each)));
    expect(opened.map((each) => each.reveal())).toEqual(bearers.map((each) => each.reveal()));
  });
});

describe('what reaches the wire and the operators', () => {
  it('is an allow-list: secret columns and members that a row gets do not', async () => {
    const { clusterId } = designated;
    const tables = [
      'credentials',
      'sealed_secrets',
      'ingress_designation_heads',
      'ingress_designation_revisions',
      'service_spec_heads',
      'service_spec_revisions',
    ];
    const { owner } = service.database;
    try {
      for (const table of tables)
        await owner.query(`alter table control.${table} add column launcher_bearer text default 'leaked'`);
      const page = { clusterId, cursor: null, limit: 1000 };
      const texts = [
        await designated.prepare(),
        await designated.prepare({ dryRun: true }),
        await service.call('readFleetCutoverIngressDesignation', { clusterId, designation: null }),
        await service.call('listCredentials', page),
        await service.call('listServices', page),
        await designated.spec(),
        await designated.revoke(),
      ].map((answer) => JSON.stringify(answer));
      expect(texts.filter((text) => text.includes('leaked'))).toEqual([]);
      expect(texts.filter((text) => /"status":[45]/.test(text))).toEqual([]);
    } finally {
      for (const table of tables) await owner.query(`alter table control.${table} drop column launcher_bearer`);
    }
    const answer = await service.done('prepareFleetCutoverIngress', await designated.request());
    const { designation } = answer;
    for (const more of [{ secrets: [] }, { bearer: 'leaked' }, { designation: { ...designation, bearer: 'leaked' } }]) {
      const write = () => writeOwnerResponse('prepareFleetCutoverIngress', { ...answer, ...more });
      expect(write).toThrow(ResponseSchemaError);
      expect(write).not.toThrow('leaked');
    }
    expect(JSON.stringify(methods.prepareFleetCutoverIngress.response)).not.toMatch(/bearer|hash|cipher|nonce|key/i);
  });

  it('are views without a value', async () => {
    const stage = await newStage();
    const { clusterId, serviceId } = stage;
    await stage.prepared();
    const { designation } = await stage.prepared();
    const { credentialId } = designation.credential;
    const { owner } = service.database;
    const rows = async (view: string) =>
      (await owner.query(`select * from operator.${view} where cluster_id = $1 order by 2, 3`, [clusterId])).rows;
    expect(await rows('ingress_designations')).toMatchObject([
      {
        generation: '1',
        current: false,
        service_id: serviceId,
        credential_id: credentialId,
        credential_generation: '1',
      },
      {
        generation: '2',
        current: true,
        service_id: serviceId,
        credential_id: credentialId,
        credential_generation: '2',
        spec_generation: String(designation.spec.generation),
        digest: designation.digest,
      },
    ]);
    const { secretId } = designation.secret;
    expect(await rows('sealed_secrets')).toEqual(
      ['1', '2'].map((version) => ({
        cluster_id: clusterId,
        secret_id: secretId,
        version,
        service_id: serviceId,
        credential_id: credentialId,
        key_id: 'k1',
      })),
    );
    const client = await owner.connect();
    try {
      await client.query('begin');
      await client.query('set local role fleet_cutover_operator');
      expect((await client.query('select from operator.sealed_secrets')).rowCount).toBeGreaterThan(1);
      await client.query('savepoint s');
      for (const table of ['sealed_secrets', 'credentials', 'ingress_designation_revisions']) {
        await expect(client.query(`select from control.${table}`)).rejects.toMatchObject({ code: '42501' });
        await client.query('rollback to s');
      }
    } finally {
      await client.query('rollback');
      client.release();
    }
  });

  it('are rows that the service cannot change: a sealed value but for its key, a designation not at all', async () => {
    const { db } = service.database;
    for (const statement of [
      'update control.ingress_designation_revisions set record = record',
      'delete from control.ingress_designation_revisions',
      'update control.sealed_secrets set credential_id = credential_id',
      'delete from control.sealed_secrets',
      'delete from control.ingress_designation_heads',
    ]) {
      await expect(db.pool.query(statement), statement).rejects.toMatchObject({ code: /^(42501|23001)$/ as unknown });
    }
  });
});
