/**
 * The reference Spark: what one node's agent does, over and over. It observes the node, reports, remembers the runtime
 * that the receipt names, and keeps the node's share of the prepared handoffs once the whole set is proved. Where Pallet
 * is on the node it has that share held, and forwards what is held page by page.
 */
import { ProblemError, TransportError } from '../../client/errors.js';
import { type ProvedHandoffSet, readPreparedVolumeHandoffs } from '../../client/page-reader.js';
import type { SparkClient } from '../../client/spark-client.js';
import type { Clock } from '../../clock.js';
import type { TFleetCutoverVolumeFence } from '../../contract/held-fence.js';
import type { ISparkSwarmObservationAcceptedReceipt, TSparkSwarmObservation } from '../../contract/observation.js';
import { type Reference, referenceOf, sameReference } from '../../contract/schema.js';
import { newIdentifier, type Random } from '../../random.js';
import type { SparkFacts } from '../docker/local-snapshot.js';
import { observeNode, type SwarmObservationBody } from '../docker/observe-node.js';
import type { DockerSource } from '../docker/source.js';
import type { NodePallet } from '../pallet/node-pallet.js';
import { createForwardedPages, heldFenceEvidence } from './forwarding.js';
import type { SparkLog } from './log.js';
import type { KeptHandoffs, SparkState } from './spark-state.js';

export interface SparkAgentOptions {
  readonly client: SparkClient;
  readonly source: DockerSource;
  readonly state: SparkState;
  /** What the agent knows of itself, and of Pallet where it can't be asked. */
  readonly facts: Pick<SparkFacts, 'spark' | 'pallet'>;
  /** Pallet on this node; without it nothing is held or forwarded. */
  readonly pallet?: NodePallet;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: SparkLog;
}

export interface SparkRun {
  readonly receipt: ISparkSwarmObservationAcceptedReceipt;
  /** The last proved set, whether this run brought it or an earlier one; null before the first. */
  readonly handoffs: KeptHandoffs | null;
  /** What Pallet holds of the set that this run has proved; null where there is no Pallet or no such set. */
  readonly holds: ForwardedHolds | null;
}

export interface ForwardedHolds {
  readonly aggregate: Reference;
  readonly pageCount: number;
  /** Pages whose evidence was accepted in this session and still counts. */
  readonly acceptedPages: number;
  /** Why the last evidence of this run did not count; null where it did, or none was sent. */
  readonly refused: HeldFenceCode;
}

type HeldFenceCode = ISparkSwarmObservationAcceptedReceipt['heldVolumeFences']['code'];

export interface SparkAgent {
  /** New with every agent: a second process of the same node is a second reporter. */
  readonly reporterSessionId: string;
  /**
   * One round. Throws what the client and the page reader throw. A report whose answer was lost is kept and sent again,
   * byte for byte under its own sequence, before the next one.
   */
  runOnce(signal?: AbortSignal): Promise<SparkRun>;
}

export function createSparkAgent(options: SparkAgentOptions): SparkAgent {
  const { client, state, log } = options;
  const reporterSessionId = newIdentifier(options.random, 'rs');
  const forwarded = createForwardedPages();
  let sequence = 0;
  let unanswered: TSparkSwarmObservation | null = null;
  let storedRuntime: Reference | null = null;

  const report = async (observation: TSparkSwarmObservation, signal: AbortSignal | undefined) => {
    unanswered = observation;
    try {
      const receipt = await client.reportObservation(observation, signal);
      unanswered = null;
      const evidence = observation.fleetCutoverHeldVolumeFences;
      if (evidence === undefined) log(reportedEvent(receipt));
      else forwarded.note(evidence, receipt);
      if (!sameReference(storedRuntime, receipt.runtime)) {
        await state.storeRuntime(receipt.runtime);
        storedRuntime = receipt.runtime;
      }
      return receipt;
    } catch (error) {
      if (!mayHaveBeenTaken(error)) unanswered = null;
      throw error;
    }
  };

  const reportNext = (body: SwarmObservationBody, signal: AbortSignal | undefined) => {
    sequence += 1;
    const observedAt = options.clock.now().getTime();
    return report({ ...body, reporterSessionId, observationSequence: sequence, observedAt }, signal);
  };

  const observeAndReport = async (
    runtime: Reference | null,
    pallet: SparkFacts['pallet'],
    signal: AbortSignal | undefined,
  ) => {
    const body = await observeNode(options.source, {
      spark: options.facts.spark,
      pallet,
      runtime,
      onFailure: ({ reason, message }) => log({ level: 'warn', event: 'census-incomplete', reason, message }),
    });
    return { body, receipt: await reportNext(body, signal) };
  };

  const forward = async (
    set: ProvedHandoffSet,
    fences: readonly TFleetCutoverVolumeFence[],
    reported: Observed,
    signal: AbortSignal | undefined,
  ): Promise<ForwardedHolds> => {
    const aggregate = referenceOf(set.aggregate);
    const byHandoff = new Map(fences.map((fence) => [fence.handoff.id, fence]));
    const bare = withoutSnapshots(reported.body);
    let refused: HeldFenceCode = null;
    let sent = 0;
    for (const page of forwarded.missing(aggregate, set.pages, reported.receipt.runtime)) {
      const evidence = heldFenceEvidence(client.nodeId, aggregate, page, byHandoff);
      const receipt = await reportNext({ ...bare, fleetCutoverHeldVolumeFences: evidence }, signal);
      sent += 1;
      refused = receipt.heldVolumeFences.code;
      if (refused !== null) break;
    }
    const holds = { aggregate, pageCount: set.pageCount, acceptedPages: forwarded.acceptedCount(aggregate), refused };
    if (sent > 0) log(forwardedEvent(holds, fences.length));
    return holds;
  };

  return Object.freeze({
    reporterSessionId,

    async runOnce(signal?: AbortSignal) {
      if (unanswered !== null) await report(unanswered, signal);
      const named = await state.loadRuntime();
      const pallet = options.pallet === undefined ? options.facts.pallet : await options.pallet.status();
      forwarded.useFenceStore(pallet?.fenceStoreId ?? null);
      let reported = await observeAndReport(named, pallet, signal);
      // Snapshots that name another runtime than the current one count for no gate: look once more right away.
      if (!sameReference(reported.receipt.runtime, named)) {
        reported = await observeAndReport(reported.receipt.runtime, pallet, signal);
      }
      const { proved, handoffs } = await readHandoffs(options, signal);
      if (proved === null || options.pallet === undefined || pallet === null) {
        return { receipt: reported.receipt, handoffs, holds: null };
      }
      const fences = await options.pallet.holdShare(proved);
      return { receipt: reported.receipt, handoffs, holds: await forward(proved, fences, reported, signal) };
    },
  });
}

interface Observed {
  readonly body: SwarmObservationBody;
  readonly receipt: ISparkSwarmObservationAcceptedReceipt;
}

/** The same state without a census: the one before is still the latest. */
function withoutSnapshots(body: SwarmObservationBody): SwarmObservationBody {
  switch (body.state) {
    case 'member': {
      const { state, localSwarmNodeId, controlAvailable } = body;
      return { state, localSwarmNodeId, controlAvailable };
    }
    case 'inactive':
      return { state: body.state };
    case 'unknown':
      return { state: body.state, reason: body.reason };
  }
}

/** The service may have taken the report, or may yet: it has to be repeated to know. */
function mayHaveBeenTaken(error: unknown): boolean {
  return error instanceof TransportError || (error instanceof ProblemError && error.status >= 500);
}

async function readHandoffs(
  { client, state, log }: SparkAgentOptions,
  signal: AbortSignal | undefined,
): Promise<{ readonly proved: ProvedHandoffSet | null; readonly handoffs: KeptHandoffs | null }> {
  const reading = await readPreparedVolumeHandoffs({
    client,
    memory: state.generations,
    ...(signal === undefined ? {} : { signal }),
  });
  const kept = await state.loadHandoffs();
  if (reading.aggregate === null) {
    log({ level: 'info', event: 'handoffs-none' });
    return { proved: null, handoffs: kept };
  }
  const { aggregate, handoffs, pageCount, referenceCount, restarts } = reading;
  const { generation, digest } = aggregate;
  log({
    level: restarts === 0 ? 'info' : 'warn',
    event: 'handoffs-proved',
    generation,
    digest,
    pageCount,
    referenceCount,
    own: handoffs.length,
    restarts,
  });
  if (sameReference(kept?.aggregate ?? null, aggregate)) return { proved: reading, handoffs: kept };
  const share = { aggregate, handoffs: [...handoffs] };
  await state.storeHandoffs(share);
  return { proved: reading, handoffs: share };
}

/** Only what the phase does not count yet is in order; a conflict means that the fence store was led back. */
function forwardedEvent(holds: ForwardedHolds, held: number): Parameters<SparkLog>[0] {
  const { aggregate, pageCount, acceptedPages, refused } = holds;
  const level =
    refused === null || refused === 'phase-refused' ? 'info' : refused === 'fence-conflict' ? 'error' : 'warn';
  return { level, event: 'holds-forwarded', generation: aggregate.generation, held, acceptedPages, pageCount, refused };
}

function reportedEvent(receipt: ISparkSwarmObservationAcceptedReceipt): Parameters<SparkLog>[0] {
  const { localSnapshot, managerSnapshot } = receipt;
  const whole = localSnapshot.state !== 'incomplete' && managerSnapshot.state !== 'incomplete';
  return {
    level: whole ? 'info' : 'warn',
    event: 'reported',
    sequence: receipt.observationSequence,
    runtimeGeneration: receipt.runtime.generation,
    localSnapshot: localSnapshot.state,
    managerSnapshot: managerSnapshot.state,
  };
}
