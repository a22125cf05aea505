/** The captured Swarm: what its 40 services come to, read once from the files alone, once through agents and service. */
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { createSparkAgent, type SparkAgent } from '../../src/agents/spark/agent.js';
import { openSparkState } from '../../src/agents/spark/spark-state.js';
import { createSparkClient, type SparkClient } from '../../src/client/spark-client.js';
import { systemClock } from '../../src/clock.js';
import { bytesDigest } from '../../src/contract/digest.js';
import type { IFleetCutoverCompleteManagerSnapshot } from '../../src/contract/observation.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { type Capture, openCapture } from '../../src/demo/capture.js';
import { scopeStatement } from '../../src/demo/statement.js';
import { systemRandom } from '../../src/random.js';
import { Secret } from '../../src/secret.js';
import { createFleet, type TestFleet } from '../support/fleet.js';
import { mutationId, startService, type TestService } from '../support/service.js';

const directory = join(import.meta.dirname, '..', 'fixtures', 'swarm');
const nodes = ['manager', 'worker'] as const;

interface Row {
  live: number;
  notStarted: number;
  stopped: number;
  unknown: number;
  required: number;
}
interface ExpectedTable {
  readonly services: Record<string, Row & { reason: string }>;
  readonly blockers: Record<
    'unclassified' | 'classified' | 'targeted',
    Record<string, { count: number; reason: string }>
  >;
  readonly required: Record<'unclassified' | 'classified', number>;
}
const readJson = async <T>(...path: string[]): Promise<T> =>
  JSON.parse(await readFile(join(directory, ...path), 'utf8')) as T;

// The files alone ---------------------------------------------------------------------------------------------------

interface RawTask {
  ID: string;
  ServiceID: string;
  NodeID?: string;
  Slot?: number;
  CreatedAt: string;
  Status: { State: string; ContainerStatus?: { ContainerID?: string } };
}
interface RawContainer {
  Config: { Labels: Record<string, string> | null };
  State: { Status: string };
  Mounts: { Type: string; Name?: string; Driver?: string; Source: string; Destination: string; RW: boolean }[];
}
interface RawVolume {
  Name: string;
  Options: Record<string, string> | null;
}
interface RawClassification {
  services: Record<string, { mounts?: Record<string, { class: string }> }>;
}

/** `<node> <service> <source> <destination>` of every key, and the counts by service. */
async function readFiles() {
  const services = await readJson<{ ID: string; Spec: { Name: string } }[]>('manager', 'services.json');
  const tasks = await readJson<RawTask[]>('manager', 'tasks.json');
  const { services: classes } = await readJson<RawClassification>('classification.json');
  const table = new Map(
    services.map(({ Spec }) => [Spec.Name, { live: 0, notStarted: 0, stopped: 0, unknown: 0, required: 0 } as Row]),
  );
  const nameOf = new Map(services.map(({ ID, Spec }) => [ID, Spec.Name]));
  const swarmNodes = new Map<string, string>();
  const stateOfTask = new Map<string, string>();
  const keys = new Set<string>();
  for (const node of nodes) {
    swarmNodes.set((await readJson<{ Swarm: { NodeID: string } }>(node, 'info.json')).Swarm.NodeID, node);
    const { Volumes } = await readJson<{ Volumes: RawVolume[] }>(node, 'volumes.json');
    const remote = new Set(
      Volumes.filter(({ Options }) => ['nfs', 'tmpfs'].includes(Options?.['type'] ?? '')).map(({ Name }) => Name),
    );
    const index = await readJson<{ path: string; file: string }[]>(node, 'index.json');
    for (const { path, file } of index) {
      if (!/^\/v1\.41\/containers\/[^/]+\/json$/.test(path)) continue;
      const container = await readJson<RawContainer>(node, file);
      const labels = container.Config.Labels ?? {};
      const task = labels['com.docker.swarm.task.id'];
      if (task === undefined) continue;
      stateOfTask.set(task, container.State.Status);
      const service = nameOf.get(labels['com.docker.swarm.service.id'] ?? '')!;
      for (const mount of container.Mounts) {
        const onNode =
          mount.Type === 'bind' || (mount.Type === 'volume' && mount.Driver === 'local' && !remote.has(mount.Name!));
        if (!onNode || !mount.RW || classes[service]?.mounts?.[mount.Destination] !== undefined) continue;
        keys.add([node, service, mount.Source, mount.Destination].join(' '));
      }
    }
  }
  for (const key of keys) table.get(key.split(' ')[1]!)!.required += 1;

  const terminal = ['complete', 'shutdown', 'failed', 'rejected', 'remove', 'orphaned'];
  const hadContainer = (task: RawTask) => (task.Status.ContainerStatus?.ContainerID ?? '') !== '';
  const isTrail = (task: RawTask) => terminal.includes(task.Status.State) && !hadContainer(task);
  const kept = tasks.filter(
    (task) =>
      !isTrail(task) ||
      !tasks.some(
        (other) =>
          isTrail(other) &&
          other.ServiceID === task.ServiceID &&
          other.Slot === task.Slot &&
          other.NodeID === task.NodeID &&
          Date.parse(other.CreatedAt) > Date.parse(task.CreatedAt),
      ),
  );
  for (const task of kept) {
    const row = table.get(nameOf.get(task.ServiceID)!)!;
    const container = stateOfTask.get(task.ID);
    if (task.NodeID === undefined || (container === undefined && isTrail(task))) row.notStarted += 1;
    else if (!swarmNodes.has(task.NodeID)) row.unknown += 1;
    else if (!terminal.includes(task.Status.State)) row[container === undefined ? 'unknown' : 'live'] += 1;
    else row[container === 'running' ? 'unknown' : 'stopped'] += 1;
  }
  return {
    table: Object.fromEntries([...table].sort(([left], [right]) => (left < right ? -1 : 1))),
    keys,
    kept: kept.length,
    nameOf,
  };
}

// Agents and service ------------------------------------------------------------------------------------------------

let service: TestService;
let fleet: TestFleet;
let capture: Capture;
let expected: ExpectedTable;
let files: Awaited<ReturnType<typeof readFiles>>;
let stateDirectory: string;
const agents: { node: string; client: SparkClient; spark: SparkAgent }[] = [];

beforeAll(async () => {
  [capture, expected, files] = await Promise.all([
    openCapture(directory),
    readJson<ExpectedTable>('verdicts.json'),
    readFiles(),
  ]);
  stateDirectory = await mkdtemp(join(tmpdir(), 'capture-test-'));
  service = await startService();
  fleet = await createFleet(service, { clusterId: 'captured', nodes, services: [...files.nameOf.values()] });
  for (const node of nodes) agents.push(openAgent(node));
});
afterAll(async () => {
  for (const { client } of agents) await client.close();
  await service.close();
  await rm(stateDirectory, { recursive: true, force: true });
});

function openAgent(node: string) {
  const client = createSparkClient({ url: service.url, nodeId: node, nodeToken: new Secret(fleet.token(node)) });
  const digest = bytesDigest('captured');
  const spark = createSparkAgent({
    client,
    source: capturedSource(capture.directoryOf(node)),
    state: openSparkState(join(stateDirectory, node)),
    facts: {
      pallet: null,
      spark: { bundleDigest: digest, unitDigest: digest, configurationDigest: digest, oldModeRefused: true },
    },
    clock: systemClock,
    random: systemRandom,
    log: () => {},
  });
  return { node, client, spark };
}

const rowsOf = (table: Record<string, Row>) =>
  Object.entries(table).map(([name, { live, notStarted, stopped, unknown, required }]) => ({
    name,
    live,
    notStarted,
    stopped,
    unknown,
    required,
  }));
const countsOf = (blockers: Record<string, { count: number }>) =>
  Object.entries(blockers).map(([code, { count }]) => ({ code, count }));
const countedBlockers = async () => (await fleet.state()).blockers;
const inventory = async () => {
  const { reference, snapshot } = await service.done('readFleetCutoverManagerSnapshot', {
    clusterId: 'captured',
    snapshot: null,
  });
  return { reference, snapshot: snapshot as IFleetCutoverCompleteManagerSnapshot };
};
const statementOf = async (classification: Capture['classification']) => {
  const owners = new Map([...files.nameOf.values()].map((name) => [name, fleet.owner(name)]));
  return scopeStatement((await inventory()).snapshot, classification, owners);
};
const sha256 = (text: string) => `sha256:${createHash('sha256').update(text).digest('hex')}`;

describe('the captured files', () => {
  it('hold what the table says of every service', () => {
    expect(Object.keys(expected.services)).toHaveLength(40);
    expect(rowsOf(files.table)).toEqual(rowsOf(expected.services));
    expect(files.keys.size).toBe(expected.required.classified);
  });

  it('are described in one sentence per row', () => {
    for (const { reason } of Object.values(expected.services)) expect(reason).toMatch(/^[A-Z][^\n]{10,}\.$/);
  });
});

describe('the service', () => {
  it('gets whole snapshots from both agents', async () => {
    const receipts = [];
    for (const { spark } of agents) receipts.push((await spark.runOnce()).receipt);
    expect(receipts.map(({ localSnapshot, managerSnapshot }) => [localSnapshot.state, managerSnapshot.state])).toEqual([
      ['accepted', 'accepted'],
      ['accepted', 'absent'],
    ]);
    const { snapshot } = await inventory();
    expect([snapshot.services.length, snapshot.tasks.length, snapshot.nodes.length]).toEqual([40, files.kept, 2]);
    expect(files.kept).toBe(84);
  });

  it('says without anybody’s word what has to be said', async () => {
    const statement = { ...(await statementOf(null)) };
    const dryRun = await fleet.classify(statement, { dryRun: true });
    expect(dryRun.body).toMatchObject({
      dryRun: true,
      state: 'incomplete',
      requiredCount: expected.required.unclassified,
    });
    expect(dryRun.body.blockers).toEqual(countsOf(expected.blockers.unclassified));
    expect((await fleet.state()).scope).toBeNull();
  });

  it('comes to the same verdicts and keys as the files, service by service', async () => {
    const scope = await fleet.classified(await statementOf(capture.classification));
    expect(scope).toMatchObject({ state: 'complete', unclassified: [], requiredCount: expected.required.classified });
    expect(await countedBlockers()).toEqual(countsOf(expected.blockers.classified));

    const entries = await fleet.entries();
    const table = new Map(
      Object.keys(files.table).map((name) => [
        name,
        { live: 0, notStarted: 0, stopped: 0, unknown: 0, required: 0 } as Row,
      ]),
    );
    for (const entry of entries) table.get(files.nameOf.get(entry.swarmServiceId)!)!.required += 1;
    for (const { swarmServiceId, verdict } of await fleet.verdicts()) {
      table.get(files.nameOf.get(swarmServiceId)!)![verdict === 'not-started' ? 'notStarted' : verdict] += 1;
    }
    expect(rowsOf(Object.fromEntries(table))).toEqual(rowsOf(expected.services));

    const identities = [...files.keys].map((key) => {
      const [node, name, source, destination] = key.split(' ') as [string, string, string, string];
      const identity = sha256(`{"sourceDigest":"${sha256(source)}","targetDigest":"${sha256(destination)}"}`);
      return [node, fleet.owner(name), identity, destination].join(' ');
    });
    expect(
      entries.map((each) => [each.nodeId, each.serviceId, each.mountIdentityDigest, each.mountPath].join(' ')).sort(),
    ).toEqual(identities.sort());
  });

  it('is blocked by nothing once the nodes are targets', async () => {
    const accepted = await fleet.accept([...nodes]);
    expect([accepted.status, accepted.body.blockers]).toEqual([200, countsOf(expected.blockers.targeted)]);
    expect(await fleet.blockers()).toEqual([]);
  });

  it('hands everything out, and every agent proves the set and holds its share', async () => {
    const { scope } = await fleet.state();
    let expectedAggregate: Reference | null = null;
    const { mutations } = await service.done('listFleetCutoverRequiredVolumeHandoffs', {
      clusterId: 'captured',
      cursor: null,
      limit: 1024,
    });
    expect(mutations.map((each) => each.length)).toEqual([32, 16]);
    for (const upserts of mutations) {
      const prepared = await service.done('prepareFleetCutoverVolumeHandoffs', {
        mutationId: mutationId(),
        clusterId: 'captured',
        runtime: fleet.runtime,
        scope: scope!,
        expectedAggregate,
        upserts,
        removals: [],
      });
      expectedAggregate = referenceOf(prepared.aggregate);
    }
    for (const { node, spark } of agents) {
      const { handoffs } = await spark.runOnce();
      expect(handoffs?.aggregate).toMatchObject({
        ...expectedAggregate!,
        state: 'complete',
        requiredCount: 48,
        pageCount: 2,
      });
      expect(handoffs?.handoffs.map((each) => each.nodeId)).toEqual(Array<string>(24).fill(node));
    }
  });
});
