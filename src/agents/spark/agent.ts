/**
 * The reference Spark: what one node's agent does, over and over. It observes the node, reports, remembers the runtime
 * that the receipt names, and keeps the node's share of the prepared handoffs once the whole set is proved.
 */
import { ProblemError, TransportError } from '../../client/errors.js';
import { readPreparedVolumeHandoffs } from '../../client/page-reader.js';
import type { SparkClient } from '../../client/spark-client.js';
import type { Clock } from '../../clock.js';
import type { ISparkSwarmObservationAcceptedReceipt, TSparkSwarmObservation } from '../../contract/observation.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import { newIdentifier, type Random } from '../../random.js';
import type { SparkFacts } from '../docker/local-snapshot.js';
import { observeNode } from '../docker/observe-node.js';
import type { DockerSource } from '../docker/source.js';
import type { SparkLog } from './log.js';
import type { KeptHandoffs, SparkState } from './spark-state.js';

export interface SparkAgentOptions {
  readonly client: SparkClient;
  readonly source: DockerSource;
  readonly state: SparkState;
  /** What the agent knows of itself and of Pallet. */
  readonly facts: Pick<SparkFacts, 'spark' | 'pallet'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: SparkLog;
}

export interface SparkRun {
  readonly receipt: ISparkSwarmObservationAcceptedReceipt;
  /** The last proved set, whether this run brought it or an earlier one; null before the first. */
  readonly handoffs: KeptHandoffs | null;
}

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
  let sequence = 0;
  let unanswered: TSparkSwarmObservation | null = null;

  const report = async (observation: TSparkSwarmObservation, signal: AbortSignal | undefined) => {
    unanswered = observation;
    try {
      const receipt = await client.reportObservation(observation, signal);
      unanswered = null;
      await state.storeRuntime(receipt.runtime);
      log(reportedEvent(receipt));
      return receipt;
    } catch (error) {
      if (!mayHaveBeenTaken(error)) unanswered = null;
      throw error;
    }
  };

  const observeAndReport = async (runtime: Reference | null, signal: AbortSignal | undefined) => {
    const body = await observeNode(options.source, {
      ...options.facts,
      runtime,
      onFailure: ({ reason, message }) => log({ level: 'warn', event: 'census-incomplete', reason, message }),
    });
    sequence += 1;
    const observedAt = options.clock.now().getTime();
    return await report({ ...body, reporterSessionId, observationSequence: sequence, observedAt }, signal);
  };

  return Object.freeze({
    reporterSessionId,

    async runOnce(signal?: AbortSignal) {
      if (unanswered !== null) await report(unanswered, signal);
      const named = await state.loadRuntime();
      let receipt = await observeAndReport(named, signal);
      // Snapshots that name another runtime than the current one count for no gate: look once more right away.
      if (!sameReference(receipt.runtime, named)) receipt = await observeAndReport(receipt.runtime, signal);
      return { receipt, handoffs: await readHandoffs(options, signal) };
    },
  });
}

/** The service may have taken the report, or may yet: it has to be repeated to know. */
function mayHaveBeenTaken(error: unknown): boolean {
  return error instanceof TransportError || (error instanceof ProblemError && error.status >= 500);
}

async function readHandoffs(
  { client, state, log }: SparkAgentOptions,
  signal: AbortSignal | undefined,
): Promise<KeptHandoffs | null> {
  const reading = await readPreparedVolumeHandoffs({
    client,
    memory: state.generations,
    ...(signal === undefined ? {} : { signal }),
  });
  const kept = await state.loadHandoffs();
  if (reading.aggregate === null) {
    log({ level: 'info', event: 'handoffs-none' });
    return kept;
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
  if (sameReference(kept?.aggregate ?? null, aggregate)) return kept;
  const proved = { aggregate, handoffs: [...handoffs] };
  await state.storeHandoffs(proved);
  return proved;
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
