/** Puts a reference Spark together and runs it. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RepetitionOptions } from '../../client/repetition.js';
import { createSparkClient } from '../../client/spark-client.js';
import type { TransportOptions } from '../../client/transport.js';
import { systemClock } from '../../clock.js';
import { bareDigest, bytesDigest } from '../../contract/digest.js';
import { systemRandom } from '../../random.js';
import type { Secret } from '../../secret.js';
import type { SparkFacts } from '../docker/local-snapshot.js';
import type { DockerSource } from '../docker/source.js';
import { openFenceStore } from '../pallet/fence-store.js';
import { createReferencePallet, type NodePallet } from '../pallet/node-pallet.js';
import { createSparkAgent } from './agent.js';
import type { SparkLog } from './log.js';
import { runSparkLoop } from './loop.js';
import { programDigest } from './program-digest.js';
import { openSparkState } from './spark-state.js';

export interface SparkSettings {
  readonly nodeId: string;
  readonly nodeToken: Secret;
  readonly transport: TransportOptions;
  readonly source: DockerSource;
  readonly stateDirectory: string;
  /** Where the reference Pallet keeps its fences; null where no Pallet runs on the node. */
  readonly palletDirectory: string | null;
  /** One round, then end. */
  readonly once: boolean;
  readonly intervalMs: number;
  /** The service manager's unit that starts this agent; null where none does. */
  readonly unitFile: string | null;
  readonly repetition?: RepetitionOptions;
}

/** Resolves when the one round is done or the signal aborts. Throws what ends the agent before that. */
export async function startSpark(settings: SparkSettings, log: SparkLog, signal: AbortSignal): Promise<void> {
  const { nodeId, nodeToken, transport, repetition, source } = settings;
  const facts = { spark: await sparkFacts(settings), pallet: null };
  const pallet = await referencePallet(settings, log);
  const client = createSparkClient({
    ...transport,
    nodeId,
    nodeToken,
    ...(repetition === undefined ? {} : { repetition }),
  });
  try {
    const agent = createSparkAgent({
      client,
      source,
      state: openSparkState(settings.stateDirectory),
      facts,
      ...(pallet === null ? {} : { pallet }),
      clock: systemClock,
      random: systemRandom,
      log,
    });
    log({ level: 'info', event: 'started', nodeId, reporterSessionId: agent.reporterSessionId });
    if (settings.once) await agent.runOnce(signal);
    else await runSparkLoop(agent, { random: systemRandom, log, signal, intervalMs: settings.intervalMs });
  } finally {
    await client.close();
  }
}

/** The reference Pallet of this program: it keeps fences and runs nothing yet, for which it is ready. */
async function referencePallet({ palletDirectory, nodeId }: SparkSettings, log: SparkLog): Promise<NodePallet | null> {
  if (palletDirectory === null) return null;
  const store = await openFenceStore({ directory: palletDirectory, nodeId, random: systemRandom });
  const { fenceStoreId, lost } = store;
  const level = lost.length === 0 ? 'info' : 'warn';
  log({ level, event: 'fences-loaded', fenceStoreId, held: store.held().length, lost: lost.length });
  return createReferencePallet({ store, version: 'reference', isReady: () => true });
}

/**
 * This agent is one program with the rest of the package and has no mode older than this one, which it so refuses. Without
 * a unit, the unit's digest is that of no bytes. The configuration's digest covers no token.
 */
async function sparkFacts(settings: SparkSettings): Promise<SparkFacts['spark']> {
  const { nodeId, transport, intervalMs, unitFile } = settings;
  return {
    bundleDigest: await programDigest(join(import.meta.dirname, '..', '..')),
    unitDigest: bytesDigest(unitFile === null ? '' : await readFile(unitFile)),
    configurationDigest: bareDigest({ nodeId, url: transport.url, intervalMs }),
    oldModeRefused: true,
  };
}
