/**
 * What follows a complete set: the phases `draining`, `switching` and `pallet`, with a gate that refuses before it is met.
 * Where something is left to do it says so and stays where it is; there is no way back, and none is needed.
 */
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import { newMutationId } from '../client/mutation-id.js';
import type { IFleetCutoverGate } from '../contract/gate.js';
import type { TFleetCutoverPhase } from '../contract/runtime.js';
import { type Reference, referenceOf } from '../contract/schema.js';
import type { IFleetCutoverScope } from '../contract/scope.js';
import { type Agent, clusterId, nodeSource, type Stage } from './stage.js';
import type { Keeper } from './statement.js';

export interface CutoverOutcome {
  readonly phase: TFleetCutoverPhase;
  /** Code of the first gate that refused an advance; null where none did. */
  readonly gateRefused: string | null;
  /** Covered and needed pages, over all target nodes. */
  readonly coverage: string;
}

interface Cast {
  readonly stage: Stage;
  readonly admin: AdministratorClient;
  readonly agents: readonly Agent[];
  readonly keepers: readonly Keeper[];
  /** Notes the first refusal of the play. */
  readonly refused: (code: string) => void;
}

export async function playCutover(
  stage: Stage,
  admin: AdministratorClient,
  agents: readonly Agent[],
  keepers: readonly Keeper[],
): Promise<CutoverOutcome> {
  let gateRefused: string | null = null;
  const cast: Cast = { stage, admin, agents, keepers, refused: (code) => (gateRefused ??= code) };
  const { scope } = await admin.readFleetCutoverScope({ clusterId, scope: null });
  const relay = scope.services.find((service) => service.class === 'coreflow')?.swarmServiceId ?? null;
  if (relay !== null) await registerRelay(cast, relay);
  if (await advance(cast, 'draining')) {
    if (await drain(cast)) await switchOver(cast, scope, relay);
  }
  const { runtime, coverage } = await admin.explainFleetCutover({ clusterId, subject: { kind: 'cluster' } });
  return { phase: runtime.phase, gateRefused, coverage: `${coverage.covered}/${coverage.total}` };
}

async function registerRelay({ stage, admin }: Cast, swarmServiceId: string): Promise<void> {
  await admin.registerCoreflowRelay({ mutationId: newMutationId(), clusterId, swarmServiceId });
  stage.say('The Coreflow relay is registered; its credential can be revoked for good, later.');
}

/**
 * Every node's Pallet holds its share, the last one only after the gate has refused without it. Nothing keeps the anonymous
 * volumes until then either.
 */
async function drain(cast: Cast): Promise<boolean> {
  const { stage, agents } = cast;
  const last = agents.at(-1);
  for (const { node, pallet } of agents) {
    if (node === last?.node) continue;
    await pallet.install();
    stage.say(`Pallet is installed on ${node}.`);
  }
  await reportAll(cast);
  if (await advance(cast, 'switching')) return true;
  if (last === undefined) return false;
  await last.pallet.install();
  stage.say(`Pallet is installed on ${last.node}, too.`);
  await keepVolumes(cast);
  await reportAll(cast);
  await sayCoverage(cast);
  return await advance(cast, 'switching');
}

/** `docker create` on each node: outside Swarm, never started, one mount per volume. */
async function keepVolumes({ stage, agents, keepers }: Cast): Promise<void> {
  const anySignal = new AbortController().signal;
  for (const { node } of agents) {
    const { Swarm: swarm } = await nodeSource(stage, node).info(anySignal);
    for (const keeper of keepers.filter((each) => each.node === node)) {
      stage.overlay.keep({ ...keeper, swarmNodeId: swarm.NodeID });
      stage.say(
        `Container ${keeper.name} was created on ${node} and keeps ${keeper.volumes.length} anonymous volumes.`,
      );
    }
  }
}

async function switchOver(cast: Cast, scope: IFleetCutoverScope, relay: string | null): Promise<void> {
  const { stage, admin, agents, keepers } = cast;
  const applications = scope.services.filter((service) => service.class === 'application');
  stage.overlay.stop(applications.map((service) => service.swarmServiceId));
  stage.say(`The administrators stopped ${applications.length} application services: to zero, or removed.`);
  for (const { node, name } of keepers) {
    stage.overlay.removeKeeper(name);
    stage.say(`Container ${name} was removed from ${node}; what it kept is a volume like any other now.`);
  }
  if (relay !== null) {
    stage.overlay.remove(relay);
    await admin.revokeFleetCutoverCoreflowCredential({
      mutationId: newMutationId(),
      clusterId,
      runtime: await currentRuntime(admin),
    });
    stage.say('The Coreflow relay is removed, and its credential revoked for good.');
  }
  for (const { pallet } of agents) {
    // As after a reboot: what was held is read from the disk.
    await pallet.install();
    pallet.makeReady();
  }
  stage.say('Pallet was restarted on every node, holds what it held, and is ready.');
  await reportAll(cast);
  await advance(cast, 'pallet');
}

export async function reportAll({ stage, agents }: Pick<Cast, 'stage' | 'agents'>): Promise<void> {
  for (const { node, spark, pallet } of agents) {
    const { receipt, holds } = await spark.runOnce();
    const held = !pallet.installed
      ? 'there is no Pallet on it'
      : `Pallet holds ${pallet.heldCount} fences` +
        (holds === null
          ? ''
          : `, ${holds.acceptedPages} of ${holds.pageCount} pages forwarded` +
            (holds.refused === null ? '' : ` (refused: ${holds.refused})`));
    stage.say(`Spark on ${node} reported under runtime generation ${receipt.runtime.generation}; ${held}.`);
  }
}

async function sayCoverage({ stage, admin }: Cast): Promise<void> {
  const { coverage } = await admin.explainFleetCutover({ clusterId, subject: { kind: 'cluster' } });
  const { covered, total, completeNodes, targetNodes } = coverage;
  stage.say(`Coverage: ${covered} of ${total} pages, ${completeNodes} of ${targetNodes} nodes complete.`);
}

async function currentRuntime(admin: AdministratorClient): Promise<Reference> {
  return referenceOf((await admin.readFleetCutoverState({ clusterId })).runtime);
}

/** True where the phase was reached; otherwise what is missing has been said. */
async function advance({ stage, admin, refused }: Cast, to: TFleetCutoverPhase): Promise<boolean> {
  try {
    const { runtime, gates } = await admin.advanceFleetCutoverPhase({
      mutationId: newMutationId(),
      clusterId,
      runtime: await currentRuntime(admin),
      to,
    });
    stage.say(`The phase is ${runtime.phase}: ${gates.length} gates were met in the transaction that moved it.`);
    return true;
  } catch (error) {
    if (!(error instanceof ProblemError) || error.code !== 'gate-unmet') throw error;
    stage.say(`To ${to}: refused (${error.status} ${error.code}).`);
  }
  const { gates } = await admin.explainFleetCutover({ clusterId, subject: { kind: 'cluster' } });
  const unmet = gates.filter((gate) => !gate.met);
  for (const gate of unmet) sayGate(stage, gate);
  if (unmet[0] !== undefined) refused(unmet[0].code);
  return false;
}

function sayGate({ say }: Stage, { code, missing, missingCount, evidence, acts }: IFleetCutoverGate): void {
  say(`  ${code}: ${missingCount} missing; next: ${acts}`);
  for (const { nodeId, swarmServiceId, detail } of missing) {
    const where = [nodeId, swarmServiceId].filter((each) => each !== null).join(' ');
    say(`    ${detail}${where === '' ? '' : ` [${where}]`}`);
  }
  for (const { reference, ageMs } of evidence) {
    const age = ageMs === null ? '' : `, seen ${(ageMs / 1000).toFixed(1)} s ago`;
    say(`    on the evidence of ${reference.id} generation ${reference.generation}${age}`);
  }
}
