import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverCompleteManagerSnapshot,
} from '../../src/contract/observation.js';
import { maximumObservationCensusBytes, sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { sparkSwarmObservationAcceptedReceiptRecord } from '../../src/contract/observation.js';
import type { IFleetCutoverScope } from '../../src/contract/scope.js';
import { deriveCluster } from '../../src/features/volume-handoff/derive-cluster.js';
import { deriveNode, type NodeTask } from '../../src/features/volume-handoff/derive-node.js';
import { createFleet, type ReportAnswer } from '../support/fleet.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import {
  bindMount,
  container,
  incompleteSnapshot,
  localSnapshot,
  managerSnapshot,
  scopeService,
  swarmNode,
  swarmService,
  swarmTask,
  taskContainer,
  volume,
  volumeMount,
} from '../support/snapshots.js';

let service: TestService;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.close());

let fleets = 0;
/** A fleet of its own, whose nodes are `<cluster>-1`, `<cluster>-2` … */
async function newFleet(nodes = 1, services: readonly string[] = []) {
  const clusterId = `f${(fleets += 1)}`;
  const nodeIds = Array.from({ length: nodes }, (_, index) => `${clusterId}-${index + 1}`);
  const names = services.map((name) => `${clusterId}-${name}`);
  const fleet = await createFleet(service, { clusterId, nodes: nodeIds, services: names });
  return {
    fleet,
    clusterId,
    nodes: nodeIds,
    node: nodeIds[0]!,
    owner: (name: string) => fleet.owner(`${clusterId}-${name}`),
  };
}
const codeOf = (answer: ReportAnswer) =>
  `${answer.status} ${answer.status === 200 ? answer.body.state : answer.body.code}`;
const wrongToken = 'x'.repeat(43);

describe('who reports', () => {
  it('is known before anything else of the body is read', async () => {
    const { fleet, node } = await newFleet();
    const malformed = (token: string) =>
      `{"nodeId":"${node}","nodeToken":"${token}","observation":{"a":1,"a":-0,"__proto__":1.5}}`;
    expect(codeOf(await fleet.send(malformed(wrongToken)))).toBe('401 credential-refused');
    expect(codeOf(await fleet.send(malformed(fleet.token(node))))).toBe('400 body-invalid-json');
    const otherProtocol = { protocol: { major: 99, minor: 0 }, token: wrongToken };
    expect(codeOf(await fleet.observe(node, { state: 'nonsense' }, otherProtocol))).toBe('401 credential-refused');
  });

  it('is nobody without both members, with another node’s token or with an unknown id', async () => {
    const { fleet, nodes, node } = await newFleet(2);
    const { nodeToken: _token, ...withoutToken } = fleet.body(node, { state: 'unknown', reason: 'timeout' });
    expect(codeOf(await fleet.send(withoutToken))).toBe('401 credential-missing');
    expect(codeOf(await fleet.send({}))).toBe('401 credential-missing');
    const theirs = { token: fleet.token(nodes[1]!) };
    expect(codeOf(await fleet.report(node, {}, theirs))).toBe('401 credential-refused');
    expect(codeOf(await fleet.send({ ...fleet.body(node, {}), nodeId: 'nobody' }))).toBe('401 credential-refused');
    expect((await fleet.node(node)).lastReport).toBeNull();
  });

  it('is refused for good once revoked, which only the right token is told', async () => {
    const { fleet, clusterId, node } = await newFleet();
    await fleet.reported(node, { local: localSnapshot() });
    await service.done('revokeNode', { mutationId: mutationId(), clusterId, nodeId: node });
    expect(codeOf(await fleet.report(node, {}))).toBe('403 node-revoked');
    expect(codeOf(await fleet.report(node, {}, { token: wrongToken }))).toBe('401 credential-refused');
  });

  it('says nothing of the token in an answer or in the log', async () => {
    const { fleet, node } = await newFleet();
    const answers = [
      await fleet.report(node, {}),
      await fleet.report(node, { local: localSnapshot() }, { sequence: 1 }),
      await fleet.send(`{"nodeId":"${node}","nodeToken":"${fleet.token(node)}","x":{"${fleet.token(node)}":-0}}`),
      await fleet.observe(node, { [fleet.token(node)]: 1 }),
    ];
    expect(answers.map((each) => each.status)).toEqual([200, 409, 400, 400]);
    for (const answer of answers) expect(answer.text).not.toContain(fleet.token(node));
    expect(service.log()).not.toContain(fleet.token(node));
  });
});

describe('sessions and sequences', () => {
  it('answers with what it took, and binds the swarm node', async () => {
    const { fleet, clusterId, node } = await newFleet();
    const answer = await fleet.report(node, {
      local: localSnapshot(),
      manager: managerSnapshot({ nodes: [swarmNode(`sn-${node}`)] }),
    });
    expect(answer.status).toBe(200);
    expect(sparkSwarmObservationAcceptedReceiptRecord.validate(answer.body)).toEqual([]);
    expect(Buffer.byteLength(answer.text)).toBeLessThanOrEqual(
      sparkSwarmNodeContracts.swarmObservation.maxResponseBytes,
    );
    expect(answer.body).toMatchObject({
      state: 'accepted',
      nodeId: node,
      reporterSessionId: `rs-${clusterId}-${node}-1`,
      observationSequence: 1,
      runtime: fleet.runtime,
      localSnapshot: { state: 'accepted', reference: { generation: 1 } },
      managerSnapshot: { state: 'accepted', reference: { generation: 1 } },
      protocol: { major: 32, minor: 15 },
    });
    expect(await fleet.node(node)).toMatchObject({
      swarmNodeId: `sn-${node}`,
      reportedSwarmNodeId: null,
      localSnapshot: answer.body.localSnapshot.reference,
      lastReport: { observationSequence: 1, state: 'member' },
    });
  });

  it('answers an exact repeat with the same bytes, and takes it once', async () => {
    const { fleet, node } = await newFleet();
    const body = fleet.body(node, { state: 'inactive', fleetCutoverLocalNodeSnapshot: localSnapshot() });
    const first = await fleet.send(body);
    const reordered = {
      ...body,
      observation: Object.fromEntries(Object.entries(body.observation as object).reverse()),
    };
    expect((await fleet.send(body)).text).toBe(first.text);
    expect((await fleet.send(JSON.stringify(reordered, null, 2))).text).toBe(first.text);
    expect(first.body.localSnapshot).toMatchObject({ state: 'accepted' });
    expect((await fleet.node(node)).localSnapshot?.generation).toBe(1);
  });

  it('refuses a lower sequence, and the same one with another body', async () => {
    const { fleet, node } = await newFleet();
    await fleet.reported(node, {}, { sequence: 7 });
    expect(codeOf(await fleet.report(node, { local: localSnapshot() }, { sequence: 7 }))).toBe('409 sequence-stale');
    const lower = await fleet.report(node, { local: localSnapshot() }, { sequence: 6 });
    expect([codeOf(lower), lower.body.detail]).toEqual(['409 sequence-stale', 'the last accepted sequence is 7']);
    expect(codeOf(await fleet.report(node, {}, { sequence: 8 }))).toBe('200 accepted');
    expect((await fleet.node(node)).localSnapshot).toBeNull();
  });

  it('takes a new session for a restart, and repeats what the old one had', async () => {
    const { fleet, node } = await newFleet();
    const body = fleet.body(node, { state: 'unknown', reason: 'docker-error' }, { session: 'old' });
    const first = await fleet.send(body);
    await fleet.reported(node, {}, { session: 'new', sequence: 1 });
    expect((await fleet.send(body)).text).toBe(first.text);
    expect((await fleet.node(node)).state).toBe('active');
  });

  it('quarantines a clone; its release rotates the credentials, and the new token begins anew', async () => {
    const { fleet, clusterId, node } = await newFleet();
    const oldToken = fleet.token(node);
    await fleet.reported(node, { local: localSnapshot() }, { session: 'old' });
    await fleet.reported(node, {}, { session: 'new' });
    const clone = await fleet.report(
      node,
      { local: localSnapshot({ containers: [container('x')] }) },
      { session: 'old' },
    );
    expect(codeOf(clone)).toBe('409 reporter-replaced');
    expect(await fleet.node(node)).toMatchObject({
      state: 'quarantined',
      quarantineReason: 'two live reporters: old reported after new replaced it',
      localSnapshot: { generation: 1 },
    });
    // Neither of the two counts any more, not even for a repeat.
    expect(codeOf(await fleet.report(node, {}, { session: 'new' }))).toBe('403 node-quarantined');
    expect(codeOf(await fleet.report(node, {}, { session: 'new', sequence: 1 }))).toBe('403 node-quarantined');
    expect(codeOf(await fleet.report(node, {}, { session: 'third' }))).toBe('403 node-quarantined');

    const released = await service.done('releaseNodeQuarantine', { mutationId: mutationId(), clusterId, nodeId: node });
    expect(released.node).toMatchObject({ state: 'active', quarantineReason: null, lastReport: null });
    const [token] = released.secrets.map((each) => each.secret);
    expect(codeOf(await fleet.report(node, {}, { session: 'fourth', token: oldToken }))).toBe('401 credential-refused');
    fleet.setToken(node, token!);
    expect(codeOf(await fleet.report(node, {}, { session: 'fourth' }))).toBe('200 accepted');
    // A reporter from before the release is a second one, whichever token it was given.
    expect(codeOf(await fleet.report(node, {}, { session: 'new' }))).toBe('409 reporter-replaced');
  });
});

describe('swarm node ids and swarms', () => {
  it('refuses a second node with the same swarm node id, and shows both', async () => {
    const { fleet, nodes } = await newFleet(2);
    const [first, second] = nodes as [string, string];
    await fleet.reported(first, { swarmNodeId: 'sn-same' });
    const taken = await fleet.report(second, { swarmNodeId: 'sn-same', local: localSnapshot() });
    expect([codeOf(taken), taken.body.detail]).toEqual([
      '409 swarm-node-taken',
      `sn-same is reported by node ${first} too`,
    ]);
    expect(await fleet.node(first)).toMatchObject({ swarmNodeId: 'sn-same', reportedSwarmNodeId: null });
    expect(await fleet.node(second)).toMatchObject({
      swarmNodeId: null,
      reportedSwarmNodeId: 'sn-same',
      localSnapshot: null,
    });
    const confirmed = await service.call('confirmNodeRejoin', {
      mutationId: mutationId(),
      clusterId: fleet.clusterId,
      nodeId: second,
      swarmNodeId: 'sn-same',
    });
    expect([confirmed.status, confirmed.body.code]).toEqual([409, 'swarm-node-taken']);
    // Its own id is taken, and the claim is gone.
    await fleet.reported(second, {});
    expect(await fleet.node(second)).toMatchObject({ swarmNodeId: `sn-${second}`, reportedSwarmNodeId: null });
  });

  it('binds a node that rejoined only when an administrator confirms it, and judges its tasks by the new id', async () => {
    const { fleet, clusterId, node } = await newFleet(1, ['a']);
    const nodes = [swarmNode('sn-old'), swarmNode('sn-new')];
    const tasks = [swarmTask('a', 'sn-new')];
    await fleet.reported(node, {
      swarmNodeId: 'sn-old',
      local: localSnapshot({ containers: [taskContainer('a', [])] }),
      manager: managerSnapshot({ nodes, tasks, services: [swarmService('a')] }),
    });
    expect((await fleet.verdicts()).map((each) => [each.nodeId, each.verdict, each.reason])).toEqual([
      [null, 'unknown', 'no-local-report'],
    ]);
    const rejoined = await fleet.report(node, { swarmNodeId: 'sn-new' });
    expect([codeOf(rejoined), rejoined.body.detail]).toEqual([
      '409 swarm-node-changed',
      'bound to sn-old, reported sn-new',
    ]);
    const confirm = (swarmNodeId: string) =>
      service.call('confirmNodeRejoin', { mutationId: mutationId(), clusterId, nodeId: node, swarmNodeId });
    expect((await confirm('sn-other')).body.code).toBe('rejoin-absent');
    expect((await confirm('sn-new')).body.node).toMatchObject({ swarmNodeId: 'sn-new', reportedSwarmNodeId: null });
    expect((await fleet.verdicts()).map((each) => [each.nodeId, each.verdict])).toEqual([[node, 'live']]);
    expect(codeOf(await fleet.report(node, { swarmNodeId: 'sn-new' }))).toBe('200 accepted');
    expect(codeOf(await fleet.report(node, { swarmNodeId: 'sn-old' }))).toBe('409 swarm-node-changed');
  });

  it('takes any swarm until one is admitted, and no other one afterwards', async () => {
    const { fleet, node } = await newFleet();
    const of = (swarmId: string) => ({ manager: managerSnapshot({ swarmId, nodes: [swarmNode(`sn-${node}`)] }) });
    await fleet.reported(node, of('swarm-1'));
    await fleet.reported(node, of('swarm-2'));
    await fleet.classified({});
    const foreign = await fleet.report(node, { ...of('swarm-1'), local: localSnapshot() });
    expect([codeOf(foreign), foreign.body.detail]).toEqual([
      '409 swarm-mismatch',
      'bound to swarm-2, reported swarm-1',
    ]);
    expect(await fleet.node(node)).toMatchObject({ localSnapshot: null, lastReport: { observationSequence: 2 } });
    expect(codeOf(await fleet.report(node, { manager: incompleteSnapshot('timeout') }))).toBe('200 accepted');
    expect((await fleet.reported(node, of('swarm-2'))).managerSnapshot).toMatchObject({
      state: 'unchanged',
      reference: { generation: 2 },
    });
  });
});

describe('snapshots', () => {
  it('that are absent leave the last one; an empty one is one', async () => {
    const { fleet, node, owner } = await newFleet(1, ['a']);
    const local = localSnapshot({ containers: [taskContainer('a', [volumeMount('v')])] });
    const manager = managerSnapshot({
      nodes: [swarmNode(`sn-${node}`)],
      services: [swarmService('a')],
      tasks: [swarmTask('a', `sn-${node}`)],
    });
    const first = await fleet.reported(node, { local, manager });
    await fleet.classified({ services: [scopeService('a', { serviceId: owner('a') })] });
    const absent = await fleet.reported(node, {});
    expect(absent.localSnapshot).toEqual({ state: 'absent', reference: first.localSnapshot.reference });
    expect(absent.managerSnapshot).toEqual({ state: 'absent', reference: first.managerSnapshot.reference });
    expect((await fleet.verdicts()).map((each) => each.verdict)).toEqual(['live']);
    const empty = await fleet.reported(node, { local: localSnapshot() });
    expect(empty.localSnapshot).toMatchObject({ state: 'accepted', reference: { generation: 2 } });
    expect((await fleet.verdicts()).map((each) => `${each.verdict} ${each.reason}`)).toEqual([
      'unknown container-not-found',
    ]);
    // The entry stays: a report does not shrink what is required.
    expect((await fleet.entries()).map((each) => each.volumeName)).toEqual(['v']);
  });

  it('of the same content keep their reference; only what people read moves', async () => {
    const { fleet, clusterId, node } = await newFleet();
    const snapshots = {
      local: localSnapshot({ containers: [container('x')] }),
      manager: managerSnapshot({ nodes: [swarmNode(`sn-${node}`)] }),
    };
    const first = await fleet.reported(node, snapshots);
    const rows = async () =>
      (
        await service.database.owner.query(
          `select node.local_generation, node.local_digest, node.local_seen_at as local_seen, head.generation, head.digest, head.seen_at as manager_seen,
             (select generation from control.derivation_heads where cluster_id = $1) as derivation,
             (select count(*) from control.local_snapshots where cluster_id = $1) as locals,
             (select count(*) from control.manager_snapshots where cluster_id = $1) as managers
           from control.nodes node join control.manager_snapshot_heads head using (cluster_id) where cluster_id = $1`,
          [clusterId],
        )
      ).rows[0] as Record<string, string>;
    const before = await rows();
    const again = await fleet.reported(node, snapshots);
    const { local_seen: localBefore, manager_seen: managerBefore, ...restBefore } = before;
    const { local_seen: localAfter, manager_seen: managerAfter, ...restAfter } = await rows();
    expect(again.localSnapshot).toEqual({ state: 'unchanged', reference: first.localSnapshot.reference });
    expect(again.managerSnapshot).toEqual({ state: 'unchanged', reference: first.managerSnapshot.reference });
    expect(restAfter).toEqual(restBefore);
    expect([Number(localAfter) >= Number(localBefore), Number(managerAfter) >= Number(managerBefore)]).toEqual([
      true,
      true,
    ]);
    const changed = await fleet.reported(node, {
      local: localSnapshot({ containers: [container('x', { state: 'exited' })] }),
    });
    expect(changed.localSnapshot).toMatchObject({
      state: 'accepted',
      reference: { id: first.localSnapshot.reference?.id, generation: 2 },
    });
    const back = await fleet.reported(node, { local: snapshots.local });
    expect(back.localSnapshot.reference).toEqual({ ...first.localSnapshot.reference, generation: 3 });
  });

  it.each(['truncated', 'engine-unreachable', 'engine-error', 'inconsistent', 'timeout'] as const)(
    'that are incomplete are recorded, block, replace nothing, and are forgotten by a whole one: %s',
    async (reason) => {
      const { fleet, clusterId, node, owner } = await newFleet(1, ['a']);
      const local = localSnapshot({ containers: [taskContainer('a', [volumeMount('v')])] });
      const manager = managerSnapshot({
        nodes: [swarmNode(`sn-${node}`)],
        services: [swarmService('a')],
        tasks: [swarmTask('a', `sn-${node}`)],
      });
      const first = await fleet.reported(node, { local, manager });
      await fleet.classified({ services: [scopeService('a', { serviceId: owner('a') })] });
      await fleet.accept([node]);
      expect(await fleet.blockers()).toEqual([]);

      const failed = await fleet.reported(node, {
        local: incompleteSnapshot(reason),
        manager: incompleteSnapshot(reason),
      });
      expect(failed.localSnapshot).toEqual({ state: 'incomplete', reference: first.localSnapshot.reference });
      expect(failed.managerSnapshot).toEqual({ state: 'incomplete', reference: first.managerSnapshot.reference });
      expect((await fleet.node(node)).localSnapshotIncomplete).toBe(reason);
      const managerCode = reason === 'truncated' ? 'task-limit' : 'snapshot-incomplete';
      expect((await fleet.blockers()).map((each) => `${each.code} ${each.nodeId}`).sort()).toEqual(
        [`${managerCode} null`, `snapshot-incomplete ${node}`].sort(),
      );
      expect((await fleet.entries()).map((each) => [each.volumeName, each.state])).toEqual([['v', 'missing']]);
      expect((await fleet.verdicts()).map((each) => each.verdict)).toEqual(['live']);
      const { rows } = await service.database.owner.query(
        'select kind, reason from control.incomplete_snapshots where cluster_id = $1 order by kind',
        [clusterId],
      );
      expect(rows).toEqual(['local', 'manager'].map((kind) => ({ kind, reason })));

      // Saying it again, or nothing at all, changes nothing.
      const derivation = (await fleet.state()).derivation;
      await fleet.reported(node, { local: incompleteSnapshot(reason), manager: incompleteSnapshot(reason) });
      await fleet.reported(node, {});
      expect((await fleet.state()).derivation).toEqual(derivation);
      const whole = await fleet.reported(node, { local, manager });
      expect([whole.localSnapshot.state, whole.managerSnapshot.state]).toEqual(['unchanged', 'unchanged']);
      expect(await fleet.blockers()).toEqual([]);
      expect((await fleet.node(node)).localSnapshotIncomplete).toBeNull();
    },
  );

  it('that were never whole leave nothing to go by', async () => {
    const { fleet, node } = await newFleet();
    const failed = await fleet.reported(node, {
      local: incompleteSnapshot('timeout'),
      manager: incompleteSnapshot('truncated'),
    });
    expect([failed.localSnapshot, failed.managerSnapshot]).toEqual([
      { state: 'incomplete', reference: null },
      { state: 'incomplete', reference: null },
    ]);
    expect((await fleet.blockers()).map((each) => each.code).sort()).toEqual([
      'scope-missing',
      'snapshot-incomplete',
      'task-limit',
    ]);
    const unread = await service.call('readFleetCutoverManagerSnapshot', {
      clusterId: fleet.clusterId,
      snapshot: null,
    });
    expect([unread.status, unread.body.code]).toEqual([404, 'record-unknown']);
  });

  it('of a node in no swarm are taken; one that cannot tell sends none', async () => {
    const { fleet, node } = await newFleet();
    await fleet.reported(node, {});
    const local = localSnapshot({ containers: [container('x')] });
    const inactive = await fleet.observe(node, { state: 'inactive', fleetCutoverLocalNodeSnapshot: local });
    expect(inactive.body.localSnapshot).toMatchObject({ state: 'accepted', reference: { generation: 1 } });
    expect(await fleet.node(node)).toMatchObject({ swarmNodeId: `sn-${node}`, lastReport: { state: 'inactive' } });
    for (const reason of [
      'docker-unreachable',
      'docker-error',
      'swarm-pending',
      'swarm-locked',
      'swarm-error',
      'timeout',
    ]) {
      const unknown = await fleet.observe(node, { state: 'unknown', reason });
      expect(unknown.body.localSnapshot).toMatchObject({ state: 'absent', reference: { generation: 1 } });
    }
    expect((await fleet.node(node)).lastReport?.state).toBe('unknown');
    expect(codeOf(await fleet.observe(node, { state: 'unknown', reason: 'bored' }))).toBe('400 body-schema');
    const tooMuch = { state: 'unknown', reason: 'timeout', fleetCutoverLocalNodeSnapshot: local };
    expect(codeOf(await fleet.observe(node, tooMuch))).toBe('400 body-schema');
    const manager = { state: 'inactive', fleetCutoverManagerSnapshot: managerSnapshot() };
    expect(codeOf(await fleet.observe(node, manager))).toBe('400 body-schema');
  });
});

describe('protocol', () => {
  it('of another major is refused with what is spoken, whatever else the body holds', async () => {
    const { fleet, node } = await newFleet();
    for (const [major, observation] of [
      [31, { state: 'member' }],
      [33, { aNewState: true }],
      [0, {}],
    ] as const) {
      const answer = await fleet.observe(node, observation, { protocol: { major, minor: 0 } });
      expect([codeOf(answer), answer.body.supported]).toEqual(['426 protocol-unsupported', { major: 32, minor: 15 }]);
    }
  });

  it.each([
    [0, 0],
    [14, 14],
    [15, 15],
    [16, 15],
    [999, 15],
  ])('minor %i is answered at %i', async (offered, spoken) => {
    const { fleet, node } = await newFleet();
    const answer = await fleet.observe(
      node,
      { state: 'unknown', reason: 'timeout' },
      { protocol: { major: 32, minor: offered } },
    );
    expect(answer.body.protocol).toEqual({ major: 32, minor: spoken });
  });
});

describe('bytes and shapes', () => {
  let shapes: Awaited<ReturnType<typeof newFleet>>;
  beforeAll(async () => {
    shapes = await newFleet();
  });
  const textOf = (observation: object) => JSON.stringify(shapes.fleet.body(shapes.node, observation));
  const unknown = { state: 'unknown', reason: 'timeout' };
  const withLocal = (name: string) =>
    textOf({ state: 'inactive', fleetCutoverLocalNodeSnapshot: localSnapshot({ volumes: [volume(name)] }) });

  it.each([
    ['a key twice', () => textOf(unknown).replace('"reason"', '"reason":"timeout","reason"'), 'duplicate-key'],
    [
      'a key twice, once escaped',
      () => textOf(unknown).replace('"reason"', '"r\\u0065ason":"timeout","reason"'),
      'duplicate-key',
    ],
    ['a credential twice', () => textOf(unknown).replace('{', `{"nodeId":"${shapes.node}",`), 'duplicate-key'],
    [
      'a credential twice, once behind the rest',
      () => textOf(unknown).replace(/\}$/, `,"nodeToken":"${'A'.repeat(43)}"}`),
      'duplicate-key',
    ],
    ['__proto__', () => textOf(unknown).replace('"reason"', '"__proto__":{},"reason"'), 'forbidden-key'],
    ['__proto__, escaped', () => textOf(unknown).replace('"reason"', '"\\u005f_proto__":{},"reason"'), 'forbidden-key'],
    ['depth', () => textOf(unknown).replace('"timeout"', `${'['.repeat(64)}${']'.repeat(64)}`), 'depth'],
    ['a lone surrogate', () => withLocal('v').replace('"v"', '"\\ud800"'), 'lone-surrogate'],
    ['-0', () => textOf(unknown).replace('1700000000000', '-0'), 'negative-zero'],
    ['2^53', () => textOf(unknown).replace('1700000000000', '9007199254740992'), 'number'],
    ['a fraction', () => textOf(unknown).replace('1700000000000', '1.0'), 'number'],
    ['an exponent', () => textOf(unknown).replace('1700000000000', '1e3'), 'number'],
    ['a byte order mark', () => `\ufeff${textOf(unknown)}`, 'not-an-object'],
    ['two documents', () => `${textOf(unknown)}{}`, 'trailing'],
    ['an array', () => `[${textOf(unknown)}]`, 'not-an-object'],
  ])('refuses %s', async (_name, text, reason) => {
    const answer = await shapes.fleet.send(text());
    expect([codeOf(answer), answer.body.detail?.split(' ')[0]]).toEqual(['400 body-invalid-json', reason]);
  });

  it('refuses wrong UTF-8', async () => {
    const bytes = Buffer.from(withLocal('wrong'));
    bytes[bytes.indexOf('wrong')] = 0xff;
    const answer = await shapes.fleet.send(bytes);
    expect([codeOf(answer), answer.body.detail?.split(' ')[0]]).toEqual(['400 body-invalid-json', 'invalid-utf8']);
  });

  it('refuses U+0000, which Postgres cannot keep', async () => {
    expect(codeOf(await shapes.fleet.send(withLocal('v').replace('"v"', '"v\\u0000"')))).toBe('400 body-schema');
  });

  it('takes 2^53 - 1 and every well-formed character', async () => {
    const local = localSnapshot({ volumes: [volume('ä\u{10000}\u0001"\\\u2028')] });
    const answer = await shapes.fleet.observe(shapes.node, {
      state: 'inactive',
      observedAt: Number.MAX_SAFE_INTEGER,
      fleetCutoverLocalNodeSnapshot: local,
    });
    expect(codeOf(answer)).toBe('200 accepted');
  });

  it('refuses an unknown and a missing key at every level', async () => {
    const { fleet, node } = shapes;
    const options = { type: null, deviceDigest: null, bindDevice: null, optionNames: [], otherOptions: 0 };
    const mount = volumeMount('v', '/data', { options });
    const fleetBody = () =>
      fleet.body(node, {
        state: 'member',
        localSwarmNodeId: `sn-${node}`,
        controlAvailable: true,
        fleetCutoverLocalNodeSnapshot: localSnapshot({
          runtime: fleet.runtime,
          containers: [container('x', { mounts: [mount] })],
          volumes: [volume('v', { options })],
          ports: [{ protocol: 'tcp', port: 1, owner: { kind: 'unknown' } }],
          pallet: { version: '1', fenceStoreId: 'f', ready: true },
        }),
        fleetCutoverManagerSnapshot: managerSnapshot({
          nodes: [swarmNode(`sn-${node}`)],
          services: [
            swarmService('a', {
              labels: [{ key: 'k', value: 'v' }],
              ports: [{ protocol: 'tcp', targetPort: 1, publishedPort: null, publishMode: 'host' }],
              mounts: [{ type: 'volume', source: null, target: '/x', readOnly: false, driver: null, options }],
            }),
          ],
          tasks: [swarmTask('a', `sn-${node}`)],
        }),
      }) as Record<string, unknown>;
    expect(codeOf(await fleet.send(fleetBody()))).toBe('200 accepted');

    const objects: string[][] = [];
    const walk = (value: unknown, path: string[]) => {
      if (typeof value !== 'object' || value === null) return;
      if (!Array.isArray(value)) objects.push(path);
      for (const [key, member] of Object.entries(value)) walk(member, [...path, key]);
    };
    walk(fleetBody(), []);
    expect(objects.length).toBeGreaterThan(20);
    const at = (body: Record<string, unknown>, path: string[]) =>
      path.reduce<Record<string, unknown>>((value, key) => value[key] as Record<string, unknown>, body);
    const optional = new Set(['fleetCutoverLocalNodeSnapshot', 'fleetCutoverManagerSnapshot']);
    const changed: Promise<[string, string]>[] = [];
    for (const path of objects) {
      const extended = fleetBody();
      at(extended, path)['unheardOf'] = 1;
      changed.push(fleet.send(extended).then((answer) => [`${path.join('/')}+`, codeOf(answer)]));
      const key = Object.keys(at(extended, path)).find(
        (each) => !['nodeId', 'nodeToken', 'protocol'].includes(each) && !optional.has(each),
      )!;
      const reduced = fleetBody();
      delete at(reduced, path)[key];
      changed.push(fleet.send(reduced).then((answer) => [`${path.join('/')}-${key}`, codeOf(answer)]));
    }
    const answers = await Promise.all(changed);
    expect(answers.filter(([, code]) => code !== '400 body-schema')).toEqual([]);
  });

  it.each([
    ['a container id', { containers: [container('x'), container('x', { name: 'y' })] }],
    ['a volume', { volumes: [volume('v'), volume('v', { driver: 'x' })] }],
    ['a destination', { containers: [container('x', { mounts: [volumeMount('v'), bindMount('/b')] })] }],
  ])(
    'refuses a local snapshot that names %s twice',
    async (_name, over: Partial<IFleetCutoverCompleteLocalNodeSnapshot>) => {
      const answer = await shapes.fleet.report(shapes.node, { local: localSnapshot(over) });
      expect(codeOf(answer)).toBe('400 body-schema');
    },
  );

  it.each([
    ['a node', { nodes: [swarmNode('n'), swarmNode('n')] }],
    ['a service', { services: [swarmService('a'), swarmService('a')] }],
    ['a task', { tasks: [swarmTask('a', null), swarmTask('a', null)] }],
  ])(
    'refuses a manager snapshot that names %s twice',
    async (_name, over: Partial<IFleetCutoverCompleteManagerSnapshot>) => {
      const answer = await shapes.fleet.report(shapes.node, { manager: managerSnapshot(over) });
      expect(codeOf(answer)).toBe('400 body-schema');
    },
  );

  it('refuses a manager snapshot of a node that is none', async () => {
    const observation = {
      state: 'member',
      localSwarmNodeId: `sn-${shapes.node}`,
      controlAvailable: false,
      fleetCutoverManagerSnapshot: managerSnapshot(),
    };
    expect(codeOf(await shapes.fleet.observe(shapes.node, observation))).toBe('400 body-schema');
  });
});

describe('limits', () => {
  /** White space before the last brace: bytes that mean nothing. */
  const padded = (text: string, bytes: number) => {
    const padding = bytes - Buffer.byteLength(text);
    return `${text.slice(0, -1)}${' '.repeat(padding)}}`;
  };

  it('4,194,304 bytes of census pass, one more does not', async () => {
    const { fleet, node } = await newFleet();
    const census = (bytes: number) =>
      padded(JSON.stringify(fleet.body(node, { state: 'unknown', reason: 'timeout' })), bytes);
    expect(maximumObservationCensusBytes).toBe(4_194_304);
    expect(codeOf(await fleet.send(census(4_194_304)))).toBe('200 accepted');
    expect(codeOf(await fleet.send(census(4_194_305)))).toBe('413 body-too-large');
    expect(codeOf(await fleet.send(census(4_325_376)))).toBe('413 body-too-large');
    expect((await fleet.node(node)).lastReport?.observationSequence).toBe(1);
  });

  it('the whole body has at most 4,325,376 bytes, whoever sends it', async () => {
    const { fleet, node } = await newFleet();
    const body = (token: string, bytes: number) =>
      padded(JSON.stringify({ ...fleet.body(node, { state: 'unknown', reason: 'timeout' }), nodeToken: token }), bytes);
    expect(codeOf(await fleet.send(body(wrongToken, 4_325_376)))).toBe('401 credential-refused');
    expect(codeOf(await fleet.send(body(wrongToken, 4_325_377)))).toBe('413 body-too-large');
    expect(codeOf(await fleet.send(body(fleet.token(node), 4_325_377)))).toBe('413 body-too-large');
  });

  it('4,096 live tasks pass, however many finished ones there are; 4,097 do not', async () => {
    const { fleet, node } = await newFleet();
    const task = (slot: number, over = {}) => swarmTask('a', `sn-${node}`, { slot, ...over });
    const tasks = Array.from({ length: 4096 }, (_, index) => task(index + 1));
    const finished = Array.from({ length: 1000 }, (_, index) => task(5000 + index, { state: 'shutdown' }));
    const manager = (list: typeof tasks) =>
      managerSnapshot({ nodes: [swarmNode(`sn-${node}`)], services: [swarmService('a')], tasks: list });
    const passed = await fleet.reported(node, { local: localSnapshot(), manager: manager([...tasks, ...finished]) });
    expect(passed.managerSnapshot).toMatchObject({ state: 'accepted', reference: { generation: 1 } });
    const verdicts = await fleet.verdicts();
    expect(verdicts).toHaveLength(5096);
    const refused = await fleet.report(node, { manager: manager([...tasks, task(4097)]) });
    expect([codeOf(refused), refused.body.errors]).toEqual([
      '400 body-schema',
      [expect.stringContaining('/tasks has 4097 non-terminal tasks, over 4096: report it as truncated')],
    ]);
    const truncated = await fleet.reported(node, { manager: incompleteSnapshot('truncated') });
    expect(truncated.managerSnapshot).toEqual({ state: 'incomplete', reference: passed.managerSnapshot.reference });
    expect((await fleet.blockers()).map((each) => each.code)).toContain('task-limit');
  });

  it('32 mounts of a container pass and make 32 entries; one more is a count that blocks', async () => {
    const { fleet, node, owner } = await newFleet(1, ['a']);
    const mounts = Array.from({ length: 33 }, (_, index) => volumeMount(`v${index}`, `/d${index}`));
    const local = (count: number, mountsBeyond: number) =>
      localSnapshot({ containers: [taskContainer('a', mounts.slice(0, count), { mountsBeyond })] });
    const manager = managerSnapshot({
      nodes: [swarmNode(`sn-${node}`)],
      services: [swarmService('a')],
      tasks: [swarmTask('a', `sn-${node}`)],
    });
    await fleet.reported(node, { local: local(32, 0), manager });
    await fleet.classified({ services: [scopeService('a', { serviceId: owner('a') })] });
    await fleet.accept([node]);
    expect([(await fleet.entries()).length, await fleet.blockers()]).toEqual([32, []]);
    expect(codeOf(await fleet.report(node, { local: local(33, 0) }))).toBe('400 body-schema');
    await fleet.reported(node, { local: local(32, 1) });
    expect((await fleet.blockers()).map((each) => `${each.code} ${each.containerName}`)).toEqual(['mount-limit a.1']);
    expect((await fleet.entries()).length).toBe(32);
  });
});

describe('at the same time', () => {
  it('two reports of one node are one after the other: the second is stale, a repeat, or the next', async () => {
    const { fleet, node } = await newFleet();
    const snapshots = [1, 2, 3, 4].map((each) => ({ local: localSnapshot({ containers: [container(`x${each}`)] }) }));
    const answers = await Promise.all(
      snapshots.map((each, index) => fleet.report(node, each, { sequence: index + 1 })),
    );
    const accepted = answers.filter((each) => each.status === 200);
    expect(answers.filter((each) => each.status !== 200).every((each) => codeOf(each) === '409 sequence-stale')).toBe(
      true,
    );
    const last = Math.max(...accepted.map((each) => each.body.observationSequence));
    expect(last).toBe(4);
    const generations = accepted.map((each) => each.body.localSnapshot.reference?.generation).sort();
    expect(generations).toEqual(accepted.map((_each, index) => index + 1));
    expect((await fleet.node(node)).localSnapshot).toEqual(answers[3]!.body.localSnapshot.reference);

    const body = fleet.body(node, { state: 'unknown', reason: 'timeout' }, { sequence: 9 });
    const repeats = await Promise.all(Array.from({ length: 5 }, () => fleet.send(body)));
    expect(new Set(repeats.map((each) => each.text)).size).toBe(1);
    expect(repeats[0]?.status).toBe(200);
  });

  it('reports of nodes, of the manager and classifications lose no derivation', async () => {
    const { fleet, clusterId, nodes, owner } = await newFleet(3, ['a', 'b', 'c']);
    const services = ['a', 'b', 'c'];
    const manager = (round: number) =>
      managerSnapshot({
        nodes: nodes.map((node) => swarmNode(`sn-${node}`)),
        services: services.map((id) => swarmService(id, { specVersion: round + 1 })),
        tasks: services.flatMap((id) =>
          nodes.map((node, index) =>
            swarmTask(id, `sn-${node}`, {
              slot: 10 * round + index + 1,
              state: round % 2 === 0 ? 'running' : 'failed',
            }),
          ),
        ),
      });
    const local = (round: number, index: number) =>
      localSnapshot({
        containers: [
          ...services.map((id, at) =>
            taskContainer(id, [volumeMount(`v-${id}-${(round + at) % 3}`)], { ordinal: 10 * round + index + 1 }),
          ),
          container('watcher', { mounts: [bindMount(`/var/lib/docker/volumes/v-a-${round % 3}`, '/watch')] }),
        ],
      });
    const statement = (round: number) => ({
      services: services.slice(0, 1 + (round % 3)).map((id) => scopeService(id, { serviceId: owner(id) })),
      coreflow: round % 2 === 0 ? ({ state: 'none', reason: 'r' } as const) : ({ state: 'undetermined' } as const),
    });
    await fleet.reported(nodes[0]!, { local: local(0, 0), manager: manager(0) });
    await fleet.classified({ services: services.map((id) => scopeService(id, { serviceId: owner(id) })) });
    for (let round = 1; round <= 6; round += 1) {
      const classify = async () => {
        const answer = await fleet.classify({
          ...statement(round),
          services: services.map((id) => scopeService(id, { serviceId: owner(id) })),
        });
        expect(answer.status).toBe(200);
      };
      await Promise.all([
        ...nodes.slice(1).map((node, index) => fleet.reported(node, { local: local(round, index + 1) })),
        classify(),
        fleet.reported(nodes[0]!, { local: local(round, 0), manager: manager(round) }),
        ...(round === 3 ? [fleet.accept(nodes.slice(0, 2))] : []),
      ]);
      expect(await storedDerivation(clusterId)).toEqual(await freshDerivation(clusterId));
    }
  });
});

/** Ids of entries and blockers, and verdicts, as the service keeps them. */
async function storedDerivation(clusterId: string) {
  const { owner } = service.database;
  const [entries, blockers, verdicts, head] = await Promise.all([
    owner.query('select handoff_id as id from control.required_entries where cluster_id = $1 and until is null', [
      clusterId,
    ]),
    owner.query('select blocker_id as id from control.blockers where cluster_id = $1 and until is null', [clusterId]),
    owner.query(
      'select swarm_task_id as task, node_id as node, verdict, reason from control.task_verdicts where cluster_id = $1',
      [clusterId],
    ),
    owner.query(
      'select required_count::int as required, blocker_count::int as blockers from control.derivation_heads where cluster_id = $1',
      [clusterId],
    ),
  ]);
  return {
    entries: entries.rows.map((row) => row.id as string).sort(),
    blockers: blockers.rows.map((row) => row.id as string).sort(),
    verdicts: verdicts.rows.map((row) => `${row.task} ${row.node} ${row.verdict} ${row.reason}`).sort(),
    counts: head.rows[0] as { required: number; blockers: number },
  };
}

/** The same from the accepted records, all at once; only what is sticky comes from what was required before. */
async function freshDerivation(clusterId: string) {
  const { owner } = service.database;
  const record = async <T>(sql: string): Promise<T> =>
    JSON.parse((await owner.query(sql, [clusterId])).rows[0].record) as T;
  const { rows: nodeRows } = await owner.query(
    `select node.node_id, node.swarm_node_id, node.local_incomplete, snapshot.record, cluster.cluster_life
     from control.nodes node join control.clusters cluster using (cluster_id)
     left join control.local_snapshots snapshot on snapshot.cluster_id = node.cluster_id and snapshot.node_id = node.node_id
       and snapshot.generation = node.local_generation where node.cluster_id = $1`,
    [clusterId],
  );
  const scope = await record<IFleetCutoverScope>(
    'select record from control.scope_revisions where cluster_id = $1 order by generation desc limit 1',
  );
  const manager = await record<IFleetCutoverCompleteManagerSnapshot>(
    'select record from control.manager_snapshots where cluster_id = $1 order by generation desc limit 1',
  );
  const targets = await owner.query(
    'select record from control.target_set_revisions where cluster_id = $1 order by generation desc limit 1',
    [clusterId],
  );
  const targeted = new Set(targets.rows.length === 0 ? [] : (JSON.parse(targets.rows[0].record).nodeIds as string[]));
  const { rows: required } = await owner.query(
    `select handoff_id as "handoffId", node_id as "nodeId", service_id as "serviceId", swarm_service_id as "swarmServiceId",
       source_digest as "sourceDigest", target_digest as "targetDigest", mount_identity_digest as "mountIdentityDigest",
       source, mount_path as "mountPath", volume_name as "volumeName", anonymous
     from control.required_entries where cluster_id = $1 and until is null`,
    [clusterId],
  );
  const tasks = manager.tasks.map((task): NodeTask => {
    const { id, serviceId, nodeId, state, containerId } = task;
    return { swarmTaskId: id, swarmServiceId: serviceId, swarmNodeId: nodeId, state, containerId };
  });
  const stateOf = (id: string | null) => manager.nodes.find((node) => node.id === id)?.state ?? null;
  const parts = nodeRows.map((row) =>
    deriveNode({
      clusterLife: row.cluster_life as string,
      nodeId: row.node_id as string,
      snapshot:
        row.record === null ? null : (JSON.parse(row.record as string) as IFleetCutoverCompleteLocalNodeSnapshot),
      incomplete: row.local_incomplete as string | null,
      tasks: tasks.filter((task) => task.swarmNodeId !== null && task.swarmNodeId === row.swarm_node_id),
      swarmState: stateOf(row.swarm_node_id as string | null),
      scope,
      specMounts: new Map(manager.services.map((each) => [each.id, each.mounts])),
      targeted: targeted.has(row.node_id as string),
      previous: required.filter((entry) => entry.nodeId === row.node_id),
    }),
  );
  const bound = new Set(nodeRows.map((row) => row.swarm_node_id as string | null));
  const cluster = deriveCluster({
    scope,
    services: manager.services.map(({ id, name }) => ({ swarmServiceId: id, name })),
    managerIncomplete: null,
    tasks: tasks
      .filter((task) => task.swarmNodeId === null || !bound.has(task.swarmNodeId))
      .map((task) => ({ ...task, swarmState: stateOf(task.swarmNodeId) })),
  });
  const blockers = [cluster, ...parts].flatMap((part) => part.blockers.map((each) => each.record.id)).sort();
  const entries = parts.flatMap((part) => part.entries.map((each) => each.handoffId)).sort();
  return {
    entries,
    blockers,
    verdicts: [cluster, ...parts]
      .flatMap((part) =>
        part.verdicts.map((each) => `${each.swarmTaskId} ${each.nodeId} ${each.verdict} ${each.reason}`),
      )
      .sort(),
    counts: { required: entries.length, blockers: blockers.length },
  };
}
