/** Acts on the phases of a cluster: advances, holds of its pages, the end of its relay. */
import {
  advanceBody,
  bringTo,
  buildFaultCutover,
  entered,
  type FaultCutover,
  type FaultPhase,
  faultPhases,
  heldPage,
  cutoverReport,
  readyFor,
  report,
} from './fault-cutover.js';
import { type Act, type ActRequest, ownerRequest } from './oracle-act.js';
import { sealedDigestOf } from './oracle-digest.js';
import {
  type AnswerBody,
  observationPath,
  oracleMutationId,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
  sameReference,
} from './oracle-http.js';

/** Clusters by the phase that they were left in: an advance uses up one, and leaves it to the acts of the next phase. */
export class CutoverStock {
  readonly #client: RawClient;
  readonly #prefix: string;
  readonly #left = new Map<FaultPhase, FaultCutover[]>();
  #built = 0;

  constructor(client: RawClient, prefix: string) {
    this.#client = client;
    this.#prefix = prefix;
  }

  async take(phase: FaultPhase): Promise<FaultCutover> {
    const left = this.#left.get(phase)?.pop();
    if (left !== undefined) return left;
    this.#built += 1;
    const cut = await buildFaultCutover(this.#client, `${this.#prefix}-cut-${this.#built}`);
    await bringTo(this.#client, cut, phase);
    return cut;
  }

  leave(cut: FaultCutover): void {
    this.#left.set(cut.phase, [...(this.#left.get(cut.phase) ?? []), cut]);
  }
}

export function advanceActs(client: RawClient, stock: CutoverStock): Act[] {
  return (['draining', 'switching', 'pallet'] as const).map((to) => advanceAct(client, stock, to));
}

function advanceAct(client: RawClient, stock: CutoverStock, to: FaultPhase): Act {
  const method = 'advanceFleetCutoverPhase';
  return {
    name: `advance, to ${to}`,
    method,
    next: async () => {
      const cut = await stock.take(faultPhases[faultPhases.indexOf(to) - 1]!);
      await readyFor(client, cut, to);
      const { clusterId, runtime: before } = cut.fleet;
      const body = advanceBody(cut, to);
      const here = `cluster_id = '${clusterId}'`;
      const request = ownerRequest(client, method, body, [
        { table: 'runtime_revisions', where: here, before: before.generation },
        { table: 'runtime_revisions', where: `${here} and generation > ${before.generation} and phase = '${to}'` },
        // The phase is the next one or the one before: nothing else is ever there.
        { table: 'runtime_heads', where: `${here} and generation = ${before.generation + 1} and phase = '${to}'` },
        ...(to === 'pallet' ? [{ table: 'coreflow_retirements', where: here }] : []),
      ]);
      const send = async (): Promise<RawAnswer> => {
        const answer = await request.send();
        if (answer.status === 200 && cut.phase !== to) {
          entered(cut, answer.body.runtime);
          stock.leave(cut);
        }
        return answer;
      };
      return { ...request, send, judge: (_, _first, again) => judgeAdvance(client, body, before, to, again.body) };
    },
  };
}

/** The runtime that was answered is the current one, follows the one that was named, and nobody can follow that again. */
async function judgeAdvance(
  client: RawClient,
  body: { mutationId: string } & Record<string, unknown>,
  before: Reference,
  to: FaultPhase,
  { runtime }: AnswerBody,
): Promise<string[]> {
  const faults: string[] = [];
  if (runtime.phase !== to || runtime.generation !== before.generation + 1)
    faults.push(`generation ${runtime.generation} in ${runtime.phase} follows ${before.generation}`);
  if (!sameReference(runtime.predecessor, before)) faults.push('the runtime names another predecessor');
  if (sealedDigestOf('fleet-cutover-runtime', runtime) !== runtime.digest) faults.push('the runtime’s digest is wrong');
  const state = await client.done('readFleetCutoverState', { clusterId: body['clusterId'] });
  if (!sameReference(referenceIn(state.runtime), referenceIn(runtime)))
    faults.push(`current is ${JSON.stringify(state.runtime)}`);
  const late = await client.owner('advanceFleetCutoverPhase', { ...body, mutationId: oracleMutationId() });
  if (late.status !== 409 || !sameReference(late.body.current, referenceIn(runtime)))
    faults.push(`a second advance from the same runtime was answered ${late.status} ${late.text}`);
  return faults;
}

export function relayAct(client: RawClient, prefix: string): Act {
  const method = 'revokeFleetCutoverCoreflowCredential';
  let serial = 0;
  return {
    name: method,
    method,
    next: async () => {
      const clusterId = `${prefix}-relay-${(serial += 1)}`;
      const made = { clusterId, controllerId: 'c', runtimeNamespace: 'r' };
      const created = await client.done('createCluster', { mutationId: oracleMutationId(), ...made });
      const relay = { mutationId: oracleMutationId(), clusterId, swarmServiceId: 'relay' };
      await client.done('registerCoreflowRelay', relay);
      const body = { mutationId: oracleMutationId(), clusterId, runtime: referenceIn(created.runtime) };
      const where = `kind = 'coreflow-relay' and cluster_id = '${clusterId}' and revoked`;
      return ownerRequest(client, method, body, [{ table: 'credentials', where }]);
    },
  };
}

/** Two pages of it are to be held. */
export async function drainingCutover(client: RawClient, clusterId: string): Promise<FaultCutover> {
  const cut = await buildFaultCutover(client, clusterId, 64);
  await bringTo(client, cut, 'draining');
  return cut;
}

/** A report that holds the second page of two; `written` makes its bytes what a test wants them to be. */
export function heldFenceAct(
  client: RawClient,
  made: () => Promise<FaultCutover>,
  written: (body: AnswerBody) => string = JSON.stringify,
): Act {
  let held = 0;
  return {
    name: 'report, of held fences',
    method: null,
    next: async () => {
      const cut = await made();
      const { node } = cut;
      const { clusterId, runtime, scope } = cut.fleet;
      held += 1;
      // Of a new aggregate nobody has read a page yet, and its coverage begins with the first one.
      const again = { mutationId: oracleMutationId(), clusterId, runtime, scope, expectedAggregate: cut.aggregate };
      cut.aggregate = referenceIn((await client.done('rederiveFleetCutoverVolumeHandoffs', again)).aggregate);
      await report(client, cut, { fleetCutoverHeldVolumeFences: await heldPage(client, cut, 0, held) });
      const second = await heldPage(client, cut, 1, held);
      const body = written(cutoverReport(cut, { fleetCutoverHeldVolumeFences: second }));
      const here = `cluster_id = '${clusterId}' and node_id = '${node.nodeId}'`;
      const fences = second.fences.map((fence: AnswerBody) => `'${fence.handoff.id}'`).join();
      const request: ActRequest = {
        mutationId: null,
        counts: [
          { table: 'reporter_sessions', where: `${here} and observation_sequence = ${node.sequence}` },
          // Page 1 beside page 0, counted once: the bits and their number agree.
          {
            table: 'coverage',
            where: `${here} and covered = 2 and covered_pages = set_bit(set_bit(0::bit(4096), 0, 1), 1, 1)`,
          },
          {
            table: 'held_fences',
            where: `${here} and generation = ${held} and handoff_id in (${fences})`,
            added: second.fences.length,
          },
        ],
        send: () => client.send(observationPath, body, {}),
      };
      return { ...request, judge: (_, _first, again) => judgeReceipt(request, second.aggregate, again) };
    },
  };
}

/** The receipt is the same text for ever, and says what was counted. */
async function judgeReceipt(request: ActRequest, aggregate: Reference, again: RawAnswer): Promise<string[]> {
  const { heldVolumeFences: holds } = again.body;
  const faults: string[] = [];
  if (holds.state !== 'accepted' || holds.coveredPages !== 2 || !sameReference(holds.aggregate, aggregate))
    faults.push(`the receipt says ${JSON.stringify(holds)}`);
  const third = await request.send();
  if (third.text !== again.text) faults.push(`two receipts: ${again.text} and ${third.text}`);
  return faults;
}
