/**
 * The main job from nothing to its end: embedded Postgres, the service, a captured Swarm, one reference agent per
 * node, everything prepared, every page verified on every node, what must be refused refused; then the phases to `pallet`,
 * the new ingress, and a search for every secret in everything that was kept, logged and shown.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SwarmOverlay } from '../agents/docker/overlay-source.js';
import { openSparkState } from '../agents/spark/spark-state.js';
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import { newMutationId } from '../client/mutation-id.js';
import { PageReaderError } from '../client/page-reader-error.js';
import { readPreparedVolumeHandoffs } from '../client/page-reader.js';
import { createSparkClient } from '../client/spark-client.js';
import { type Config, readConfig } from '../config.js';
import type { MethodRequest, MethodResponse } from '../contract/methods.js';
import type { IFleetCutoverCompleteManagerSnapshot } from '../contract/observation.js';
import type { TFleetCutoverPhase } from '../contract/runtime.js';
import { type Reference, referenceOf } from '../contract/schema.js';
import { bootstrap } from '../features/auth/host-operations.js';
import { onHostDatabase } from '../host-access.js';
import { createLogger } from '../http/request-log.js';
import { systemRandom } from '../random.js';
import { isRefused } from '../refusal.js';
import { Secret } from '../secret.js';
import { Service } from '../service.js';
import { type IClassification, openCapture } from './capture.js';
import { playCutover, reportAll } from './cutover.js';
import { type IngressOutcome, playIngress } from './ingress.js';
import { SecretCanary } from './secret-canary.js';
import { searchSecrets } from './secret-search.js';
import { type Agent, clusterId, nodeSource, openAdministrator, openAgent, type Stage } from './stage.js';
import { addedServiceNames, keepersOf, scopeStatement, withAddedServices, withKeepers } from './statement.js';
import { openTamperingProxy } from './tampering-proxy.js';

export interface DemoResult {
  readonly nodes: number;
  readonly tasks: number;
  readonly verdicts: MethodResponse<'readFleetCutoverState'>['verdicts'];
  readonly required: number;
  readonly prepared: number;
  readonly blockers: number;
  readonly state: 'complete' | 'incomplete';
  readonly pages: number;
  /** Summed over the nodes. */
  readonly verifiedPages: number;
  readonly conflict: string | null;
  readonly replayed: boolean | null;
  readonly tamperRefused: boolean | null;
  /** The phase that was reached. */
  readonly phase: TFleetCutoverPhase;
  /** Code of the first gate that refused an advance. */
  readonly gateRefused: string | null;
  /** Covered and needed pages, summed over the nodes. */
  readonly coverage: string;
  /** Of the ingress; null, like what follows, where `pallet` was not reached. */
  readonly designation: IngressOutcome['designation'] | null;
  readonly lostAnswerReplayed: boolean | null;
  /** How often a secret was found where none belongs. */
  readonly secretCanary: string | null;
}

export interface DemoOptions {
  readonly captureDirectory: string;
  /** The agents add a labelled Coreflow relay and a Coretraffic to what was captured, and the people class them. */
  readonly addRelayAndIngress: boolean;
  /** Gets the story, line by line. */
  readonly say: (line: string) => void;
}

/** Leaves nothing behind. */
export async function runDemo({ captureDirectory, addRelayAndIngress, say }: DemoOptions): Promise<DemoResult> {
  const capture = await openCapture(captureDirectory);
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-demo-'));
  // Started as root, Postgres runs as another user, who must be able to pass through.
  await chmod(directory, 0o711);
  const config = readConfig({
    EMBEDDED_DATA_DIR: join(directory, 'postgres'),
    PORT: '0',
    LOG_LEVEL: 'trace',
    KEY_ENCRYPTION_KEYS: `demo:${systemRandom.bytes(32).toString('base64')}`,
  });
  const logged: string[] = [];
  const service = new Service(config, createLogger(config.logLevel, { write: (line) => void logged.push(line) }));
  const canary = new SecretCanary();
  const saying = (line: string) => {
    canary.show('line of the story', line);
    say(line);
  };
  try {
    saying('Starting an embedded Postgres and the service …');
    const url = await service.start();
    saying(`The service listens on ${url}.`);
    const token = await firstToken(config);
    canary.learn('administrator ada', token);
    const overlay = new SwarmOverlay();
    const stage: Stage = { capture, overlay, directory, url, say: saying, config, log: () => logged, canary };
    const added = addRelayAndIngress && capture.classification !== null && (await addServices(stage));
    const classification = added ? withAddedServices(capture.classification) : capture.classification;
    return await playDemo(stage, classification, token);
  } finally {
    await service.stop();
    await rm(directory, { recursive: true, force: true });
  }
}

async function firstToken(config: Config): Promise<Secret> {
  const input = { organizationId: 'acme', principalId: 'ada', additional: false };
  const issued = await onHostDatabase(config, (deps) => bootstrap(deps, input));
  if (isRefused(issued)) throw new Error(`no first token: ${issued.problem.code}`);
  return new Secret(issued.token);
}

/** On the first manager; false where the capture has none. */
async function addServices(stage: Stage): Promise<boolean> {
  const anySignal = new AbortController().signal;
  for (const node of stage.capture.nodes) {
    const { Swarm: swarm } = await nodeSource(stage, node).info(anySignal);
    if (!swarm.ControlAvailable) continue;
    const { NodeID: swarmNodeId } = swarm;
    stage.overlay.add({ name: addedServiceNames.coreflow, role: 'coreflow', swarmNodeId, ports: [] });
    stage.overlay.add({ name: addedServiceNames.coretraffic, role: 'ingress', swarmNodeId, ports: [80, 443] });
    stage.say(`A Coreflow relay and a Coretraffic (ports 80 and 443) run on ${node} beside what was captured.`);
    return true;
  }
  return false;
}

async function playDemo(stage: Stage, classification: IClassification | null, token: Secret): Promise<DemoResult> {
  const { say, capture, canary } = stage;
  const admin = openAdministrator(stage, token);
  const agents: Agent[] = [];
  try {
    const { owners, runtime, tokens } = await registerFleet(stage, admin);
    for (const node of capture.nodes) agents.push(openAgent(stage, node, tokens.get(node)!));
    for (const agent of agents) await reportNode(stage, agent);
    const { snapshot, required, keepers } = await admit(stage, admin, classification, { runtime, owners });
    await acceptTargets(stage, admin, runtime);
    await prepareAll(stage, admin, runtime, required);
    const contest = await contestHandoff(stage, admin, runtime);
    const verifiedPages = await verifyPages(stage, agents);
    const tamperRefused = verifiedPages === 0 ? null : await tryTampering(stage, agents[0]!);
    const state = await admin.readFleetCutoverState({ clusterId });
    const blockers = state.blockers.reduce((sum, each) => sum + each.count, 0);
    if (blockers > 0) await sayBlockers(stage, admin, blockers);
    const cutover = await playCutover(stage, admin, agents, keepers);
    const ingress = cutover.phase === 'pallet' ? await finish(stage, admin, agents, token) : null;
    const result = {
      nodes: capture.nodes.length,
      tasks: snapshot.tasks.length,
      verdicts: state.verdicts,
      required: state.derivation.requiredCount,
      prepared: state.aggregate?.actualCount ?? 0,
      blockers,
      state: state.aggregate?.state ?? 'incomplete',
      pages: state.aggregate?.pageCount ?? 0,
      verifiedPages,
      ...contest,
      tamperRefused,
      ...cutover,
      designation: ingress?.designation ?? null,
      lostAnswerReplayed: ingress?.lostAnswerReplayed ?? null,
    };
    canary.show('last line', JSON.stringify(result));
    return { ...result, secretCanary: ingress === null ? null : await searchSecrets(stage) };
  } finally {
    for (const agent of agents) await agent.client.close();
    await admin.close();
    say('');
  }
}

/** The nodes report what ports they have under Pallet; until then the new ingress could not be told to have none. */
async function finish(
  stage: Stage,
  admin: AdministratorClient,
  agents: readonly Agent[],
  token: Secret,
): Promise<IngressOutcome> {
  await reportAll({ stage, agents });
  return await playIngress(stage, admin, token);
}

interface Registered {
  readonly runtime: Reference;
  readonly tokens: ReadonlyMap<string, Secret>;
  /** Service ids by name. */
  readonly owners: ReadonlyMap<string, string>;
}

/** The cluster, its nodes, and one service of ours per swarm service of the capture. */
async function registerFleet(stage: Stage, admin: AdministratorClient): Promise<Registered> {
  const { capture, say } = stage;
  const names = new Set<string>();
  const anySignal = new AbortController().signal;
  for (const node of capture.nodes) {
    const services = await nodeSource(stage, node)
      .services(anySignal)
      .catch(() => []);
    for (const { Spec } of services) names.add(Spec.Name);
  }
  const created = await admin.createCluster({
    mutationId: newMutationId(),
    clusterId,
    controllerId: 'cloudly-demo',
    runtimeNamespace: 'demo',
  });
  const imported = await admin.importFleet({
    mutationId: newMutationId(),
    clusterId,
    nodes: capture.nodes.map((nodeId) => ({ nodeId, corestorePublicKey: null })),
    services: [...names].sort().map((name) => ({ name })),
    specs: [],
  });
  const tokens = new Map<string, Secret>();
  for (const { kind, subjectId, secret } of imported.secrets) {
    if (kind === 'node-token') tokens.set(subjectId, new Secret(secret));
  }
  say(`Registered ${capture.nodes.length} nodes (${capture.nodes.join(', ')}) and ${names.size} services.`);
  return {
    runtime: referenceOf(created.runtime),
    tokens,
    owners: new Map(imported.services.map((service) => [service.name, service.serviceId])),
  };
}

async function reportNode({ say }: Stage, { node, spark }: Agent): Promise<void> {
  const { receipt } = await spark.runOnce();
  say(
    `Spark on ${node} reported: local snapshot ${receipt.localSnapshot.state}, manager snapshot ${receipt.managerSnapshot.state}.`,
  );
}

async function admit(
  { say }: Stage,
  admin: AdministratorClient,
  classification: IClassification | null,
  { runtime, owners }: Pick<Registered, 'runtime' | 'owners'>,
) {
  const { reference, snapshot } = await admin.readFleetCutoverManagerSnapshot({ clusterId, snapshot: null });
  const inventory = snapshot as IFleetCutoverCompleteManagerSnapshot;
  say(`The inventory has ${inventory.services.length} swarm services and ${inventory.tasks.length} tasks.`);
  const before = await classify(admin, runtime, reference, null, scopeStatement(inventory, null, owners), true);
  const total = before.blockers.reduce((sum, each) => sum + each.count, 0);
  say(
    `Dry run without anybody's word: ${before.requiredCount} entries required, ${total} blockers (${summary(before.blockers)}).`,
  );
  const scope = await classify(
    admin,
    runtime,
    reference,
    null,
    scopeStatement(inventory, classification, owners),
    false,
  );
  const left = scope.blockers.filter((each) => each.code !== 'node-not-targeted');
  say(
    `Classified: scope ${scope.state}, ${scope.requiredCount} entries required, ${left.length === 0 ? 'no blocker but the missing targets' : summary(left)}.`,
  );
  const keepers = keepersOf(await requiredEntries(admin));
  // Where nobody has said anything, nothing is going to be stopped.
  if (classification === null || keepers.length === 0)
    return { snapshot: inventory, required: scope.scope, keepers: [] };
  const kept = withKeepers(scopeStatement(inventory, classification, owners), keepers);
  const confirmed = await classify(admin, runtime, reference, scope.scope, kept, false);
  const count = keepers.reduce((sum, { volumes }) => sum + volumes.length, 0);
  say(
    `${count} of the required volumes are anonymous: Swarm deletes them with their containers. The scope confirms the ` +
      `${keepers.length} containers outside Swarm that will keep them (${keepers.map(({ name }) => name).join(', ')}).`,
  );
  return { snapshot: inventory, required: confirmed.scope, keepers };
}

async function requiredEntries(admin: AdministratorClient) {
  const entries: MethodResponse<'listFleetCutoverRequiredVolumeHandoffs'>['entries'] = [];
  let cursor: string | null = null;
  do {
    const list: MethodResponse<'listFleetCutoverRequiredVolumeHandoffs'> =
      await admin.listFleetCutoverRequiredVolumeHandoffs({ clusterId, cursor, limit: 1024 });
    entries.push(...list.entries);
    cursor = list.nextCursor;
  } while (cursor !== null);
  return entries;
}

function classify(
  admin: AdministratorClient,
  runtime: Reference,
  inventory: Reference,
  expectedScope: Reference | null,
  statement: MethodRequest<'classifyFleetCutoverScope'>['statement'],
  dryRun: boolean,
) {
  const request = { mutationId: newMutationId(), clusterId, runtime, inventory, expectedScope, statement };
  return admin.classifyFleetCutoverScope(dryRun ? { ...request, dryRun } : request);
}

function summary(blockers: readonly { code: string; count: number }[]): string {
  return blockers.length === 0 ? 'none' : blockers.map((each) => `${each.count} × ${each.code}`).join(', ');
}

async function acceptTargets({ capture, say }: Stage, admin: AdministratorClient, runtime: Reference): Promise<void> {
  await admin.acceptFleetCutoverTargetSet({
    mutationId: newMutationId(),
    clusterId,
    runtime,
    expectedTargetSet: null,
    nodeIds: [...capture.nodes],
  });
  say(`Target set accepted: ${capture.nodes.join(', ')} will run Pallet.`);
}

async function prepareAll(
  { say }: Stage,
  admin: AdministratorClient,
  runtime: Reference,
  scope: Reference,
): Promise<void> {
  let expectedAggregate: Reference | null = null;
  let cursor: string | null = null;
  let mutations = 0;
  do {
    const list: MethodResponse<'listFleetCutoverRequiredVolumeHandoffs'> =
      await admin.listFleetCutoverRequiredVolumeHandoffs({
        clusterId,
        cursor,
        limit: 1024,
      });
    for (const upserts of list.mutations) {
      const answer: MethodResponse<'prepareFleetCutoverVolumeHandoffs'> = await admin.prepareFleetCutoverVolumeHandoffs(
        {
          mutationId: newMutationId(),
          clusterId,
          runtime,
          scope,
          expectedAggregate,
          upserts,
          removals: [],
        },
      );
      expectedAggregate = referenceOf(answer.aggregate);
      mutations += 1;
      say(
        `  prepared ${answer.aggregate.actualCount} of ${answer.aggregate.requiredCount}, aggregate generation ` +
          `${answer.aggregate.generation} is ${answer.aggregate.state}`,
      );
    }
    cursor = list.nextCursor;
  } while (cursor !== null);
  if (mutations === 0) {
    const empty = await admin.rederiveFleetCutoverVolumeHandoffs({
      mutationId: newMutationId(),
      clusterId,
      runtime,
      scope,
      expectedAggregate,
    });
    say(`Nothing could be prepared; the empty aggregate is ${empty.aggregate.state}.`);
    return;
  }
  say(`Prepared in ${mutations} mutations of at most 32 entries.`);
}

interface Contest {
  readonly conflict: string | null;
  readonly replayed: boolean | null;
}

/** Two administrators change the same handoff against the same aggregate: one wins, the other learns what is current. */
async function contestHandoff(stage: Stage, admin: AdministratorClient, runtime: Reference): Promise<Contest> {
  const { say } = stage;
  const { aggregate } = await admin.readFleetCutoverVolumeHandoffAggregate({ clusterId, aggregate: null });
  const { entries } = await admin.listFleetCutoverRequiredVolumeHandoffs({ clusterId, cursor: null, limit: 1024 });
  const prepared = entries.find((entry) => entry.state === 'prepared' && entry.blockers.length === 0);
  if (aggregate === null || prepared === undefined) return { conflict: null, replayed: null };
  const { handoff } = await admin.readFleetCutoverVolumeHandoff({
    clusterId,
    nodeId: prepared.nodeId,
    id: prepared.id,
    generation: null,
  });
  const change = (requestedCapacityBytes: number): MethodRequest<'prepareFleetCutoverVolumeHandoffs'> => ({
    mutationId: newMutationId(),
    clusterId,
    runtime,
    scope: aggregate.scope,
    expectedAggregate: referenceOf(aggregate),
    upserts: [
      {
        nodeId: prepared.nodeId,
        serviceId: prepared.serviceId,
        mountIdentityDigest: prepared.mountIdentityDigest,
        request: { ...handoff.claimIntent.binding.request, requestedCapacityBytes },
      },
    ],
    removals: [],
  });
  const issued = await admin.issueAdministratorToken({
    mutationId: newMutationId(),
    principalId: 'grace',
    role: 'administrator',
  });
  const second = openAdministrator(stage, new Secret(issued.secrets[0]!.secret));
  try {
    const mine = change(1_073_741_824);
    const won = await admin.prepareFleetCutoverVolumeHandoffs(mine);
    say(`ada revised a handoff: aggregate generation ${won.aggregate.generation} is ${won.aggregate.state}.`);
    const conflict = await refusalOf(second.prepareFleetCutoverVolumeHandoffs(change(2_147_483_648)));
    say(`grace, who had read generation ${aggregate.generation}, got ${conflict ?? 'no refusal'}.`);
    const replay = await admin.prepareFleetCutoverVolumeHandoffs(mine);
    say(
      `ada repeated her request with the same mutation id: replayed ${String(replay.replayed)}, still current ${String(replay.current)}.`,
    );
    return { conflict, replayed: replay.replayed };
  } finally {
    await second.close();
  }
}

async function refusalOf(call: Promise<unknown>): Promise<string | null> {
  try {
    await call;
    return null;
  } catch (error) {
    if (error instanceof ProblemError) return `${error.status} ${error.code}`;
    throw error;
  }
}

async function verifyPages({ say }: Stage, agents: readonly Agent[]): Promise<number> {
  let verified = 0;
  for (const { node, spark } of agents) {
    const { handoffs } = await spark.runOnce();
    if (handoffs === null) {
      say(`Spark on ${node} found no complete set.`);
      continue;
    }
    verified += handoffs.aggregate.pageCount;
    say(
      `Spark on ${node} verified ${handoffs.aggregate.pageCount} pages and holds its ${handoffs.handoffs.length} handoffs.`,
    );
  }
  return verified;
}

/** Somebody between node and service changes one digit: the reader must refuse the page. */
async function tryTampering({ say, url, directory }: Stage, { node, token }: Agent): Promise<boolean> {
  const proxy = await openTamperingProxy(url);
  const client = createSparkClient({ url: proxy.url, nodeId: node, nodeToken: token });
  try {
    const state = openSparkState(join(directory, 'agents', `${node}-tampered`));
    await readPreparedVolumeHandoffs({ client, memory: state.generations });
    say('A tampered page was NOT refused.');
    return false;
  } catch (error) {
    if (!(error instanceof PageReaderError)) throw error;
    say(`A page with one changed digit was refused by the reader: ${error.code}.`);
    return true;
  } finally {
    await client.close();
    await proxy.close();
  }
}

async function sayBlockers({ say }: Stage, admin: AdministratorClient, count: number): Promise<void> {
  say(`${count} blockers are left:`);
  let cursor: string | null = null;
  do {
    const page: MethodResponse<'listFleetCutoverBlockers'> = await admin.listFleetCutoverBlockers({
      clusterId,
      cursor,
      limit: 1024,
    });
    for (const blocker of page.blockers) {
      const where = [blocker.nodeId, blocker.swarmServiceId, blocker.containerName, blocker.target].filter(
        (each) => each !== null,
      );
      say(`  ${blocker.code}: ${blocker.detail} [${where.join(' ')}]`);
    }
    cursor = page.nextCursor;
  } while (cursor !== null);
}
