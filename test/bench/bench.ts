/** The whole benchmark: one service process, two fleets of the contract's largest size and three that drain, and what it costs to use them. */
import { fleetCutoverContract, maximumPreparedVolumeHandoffs } from '../../src/contract/limits.js';
import type { Reference } from '../../src/contract/schema.js';
import { type SyntheticFleet, syntheticFleet, type SyntheticKey, volumesOf } from '../support/synthetic-fleet.js';
import { BareFill } from './bare-fill.js';
import { type Fill, fill, latencyAt, prepare } from './fill.js';
import { measureObservations } from './observations.js';
import { type HeldFences, measureHeldFences } from './held-fences.js';
import { createOwnerClient, type OwnerClient } from './owner-client.js';
import { measurePageReads } from './page-reads.js';
import { quantile, rounded } from './quantile.js';
import type { Scale } from './scale.js';
import { type ServiceHost, startServiceHost } from './service-host.js';

type Latency = { readonly p50: number; readonly p99: number };

export interface BenchResult {
  /** Milliseconds of a 32-entry mutation by how many handoffs are present. */
  readonly mutation: {
    readonly pageOrder?: Record<string, Latency>;
    readonly randomOrder?: Record<string, Latency>;
    readonly bare?: Latency;
  };
  readonly fill: { readonly ms: number; readonly bareMs: number; readonly ratio: number };
  /** Milliseconds at the ceiling: the mutation that completes the set, an update in place, an insert in the middle. */
  readonly completion: number;
  readonly updateComplete: number;
  readonly insertComplete: number;
  readonly pageReads: { readonly perSecond: number; readonly bare: number; readonly ratio: number };
  /** Milliseconds of a 4 MiB report. */
  readonly observation: { readonly unchangedMs: number; readonly changedMs: number };
  readonly heldFences: HeldFences;
  readonly eventLoopDelayMs: number;
  readonly rssMb: number;
  readonly handoffs: number;
}

/** What can be measured by itself, in this order. */
export const benchParts = ['pageOrder', 'pageReads', 'randomOrder', 'observation', 'heldFences'] as const;
export type BenchPart = (typeof benchParts)[number];

export interface BenchOptions {
  readonly scale: Scale;
  readonly parts: ReadonlySet<BenchPart>;
  readonly say: (line: string) => void;
  /** For the service's process. */
  readonly execArgv: readonly string[];
}

const entriesPerPage = fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries;

/** The figures of the parts that were asked for. */
export async function runBench(options: BenchOptions): Promise<Partial<BenchResult>> {
  const { scale, parts, say, execArgv } = options;
  if (scale.nodes * scale.volumesPerNode > maximumPreparedVolumeHandoffs) {
    throw new Error('the scale is beyond the contract');
  }
  say('starting the service and its database');
  const host = await startServiceHost(execArgv);
  const client = createOwnerClient(host.url, host.token);
  const bench: Bench = { ...options, host, client };
  try {
    const pageOrder = parts.has('pageOrder') || parts.has('pageReads') ? await measurePageOrder(bench) : {};
    const randomOrder = parts.has('randomOrder') ? await filledFleet(bench, 'random-order', shuffled) : undefined;
    const observed = parts.has('observation') ? await measureReports(bench) : {};
    const heldFences = parts.has('heldFences') ? await measureHeldFences(client, scale.heldFences, say) : undefined;
    const mutation = {
      ...pageOrder.mutation,
      ...(randomOrder === undefined ? {} : { randomOrder: latencies(randomOrder.filled, scale) }),
    };
    return {
      ...pageOrder,
      mutation,
      ...observed,
      ...(heldFences === undefined ? {} : { heldFences }),
      handoffs: scale.nodes * scale.volumesPerNode,
    };
  } finally {
    await client.close();
    await host.stop();
  }
}

interface Bench extends BenchOptions {
  readonly host: ServiceHost;
  readonly client: OwnerClient;
}

function latencies(filled: Fill, scale: Scale): Record<string, Latency> {
  return Object.fromEntries(
    scale.present.map((present) => [String(present), latencyAt(filled, present, scale.samples)]),
  );
}

/** A fill in page order, what its complete set then takes, and reads of its pages. */
async function measurePageOrder(bench: Bench): Promise<Partial<BenchResult>> {
  const { host, scale, parts, say } = bench;
  const ceiling = scale.nodes * scale.volumesPerNode;
  let bare: BareFill | undefined;
  // In turns, so that both see the same machine.
  const bareTurn = async (mutations: number): Promise<void> => {
    if (!parts.has('pageOrder')) return;
    bare ??= await BareFill.open(host.config, 'page-order', entriesPerPage);
    await bare.turn(mutations - bare.latencies.length);
  };
  const pageOrder = await filledFleet(bench, 'page-order', (keys) => keys, bareTurn);
  await bare?.close();
  const { filled, fleet } = pageOrder;
  say(`filled in page order: ${rounded(filled.ms, 0)} ms`);
  if (bare !== undefined) say(`as many bare transactions: ${rounded(bare.ms, 0)} ms`);

  const inserted = await insertMissing(bench, pageOrder);
  const updated = await updateInPlace(bench, fleet, inserted.aggregate);
  say(
    `at the ceiling: completion ${filled.latencies.at(-1)} ms, inserts ${inserted.ms.join(', ')} ms, updates ${updated.ms.join(', ')} ms`,
  );
  const work = { fleet, aggregate: updated.aggregate, pageCount: Math.ceil(ceiling / entriesPerPage) };
  const reads = parts.has('pageReads')
    ? await measurePageReads(host.url, { ...work, seconds: scale.readSeconds })
    : undefined;
  if (reads !== undefined) say(`page reads: ${rounded(reads.perSecond, 0)}/s, bare ${rounded(reads.bare, 0)}/s`);
  const { rssMb } = await host.measure();
  return {
    ...(bare === undefined
      ? {}
      : {
          mutation: {
            pageOrder: latencies(filled, scale),
            bare: { p50: rounded(quantile(bare.latencies, 0.5)), p99: rounded(quantile(bare.latencies, 0.99)) },
          },
          fill: {
            ms: rounded(filled.ms, 0),
            bareMs: rounded(bare.ms, 0),
            ratio: rounded(filled.ms / bare.ms),
          },
        }),
    completion: rounded(filled.latencies.at(-1)!, 0),
    updateComplete: rounded(quantile(updated.ms, 0.5), 1),
    insertComplete: rounded(quantile(inserted.ms, 0.5), 0),
    ...(reads === undefined
      ? {}
      : {
          pageReads: {
            perSecond: rounded(reads.perSecond, 0),
            bare: rounded(reads.bare, 0),
            ratio: rounded(reads.ratio),
          },
        }),
    rssMb: rounded(rssMb, 0),
  };
}

async function measureReports({ host, client, scale }: Bench): Promise<Partial<BenchResult>> {
  const observed = await measureObservations(host, client, {
    bytes: scale.observationBytes,
    rounds: scale.observations,
  });
  return {
    observation: { unchangedMs: rounded(observed.unchangedMs, 0), changedMs: rounded(observed.changedMs, 0) },
    eventLoopDelayMs: rounded(observed.longestDelayMs, 1),
  };
}

interface FilledFleet {
  readonly fleet: SyntheticFleet;
  readonly filled: Fill;
}

/** Nodes in the middle of the order lack one volume each, which {@link insertMissing} adds. */
function missingNodes(scale: Scale): number[] {
  return Array.from({ length: scale.insertions }, (_, index) => Math.floor(scale.nodes / 2) - index);
}

async function filledFleet(
  { client, scale, say }: Bench,
  clusterId: string,
  order: (keys: SyntheticKey[]) => SyntheticKey[],
  between: (mutations: number) => Promise<void> = async () => {},
): Promise<FilledFleet> {
  const missing = new Set(missingNodes(scale));
  const volumesPerNode = Array.from(
    { length: scale.nodes },
    (_, index) => scale.volumesPerNode - (missing.has(index) ? 1 : 0),
  );
  const started = performance.now();
  const fleet = await syntheticFleet(client, { clusterId, nodes: scale.nodes, volumesPerNode });
  const keys = order(fleet.keys());
  say(
    `${clusterId}: ${keys.length} entries required of ${scale.nodes} nodes after ${rounded(performance.now() - started, 0)} ms`,
  );
  const filled = await fill(client, fleet, keys, async (share, mutations) => {
    say(`${clusterId}: ${rounded(share * 100, 0)} %`);
    await between(mutations);
  });
  if (filled.state !== 'complete') throw new Error(`the set of ${clusterId} is not complete`);
  return { fleet, filled };
}

interface Timed {
  readonly ms: readonly number[];
  readonly aggregate: Reference;
}

/** Each insert makes a complete set from a complete one, in its middle. */
async function insertMissing({ client, scale }: Bench, { fleet, filled }: FilledFleet): Promise<Timed> {
  let { aggregate } = filled;
  const ms: number[] = [];
  for (const index of missingNodes(scale)) {
    const { nodeId } = fleet.nodes[index]!;
    const known = new Set(fleet.keys().map((key) => key.id));
    await fleet.report(nodeId, { volumes: volumesOf(scale.volumesPerNode, fleet.services.length) });
    const added = fleet.keys().filter((key) => !known.has(key.id));
    const mutated = await prepare(client, fleet, aggregate, added);
    if (mutated.state !== 'complete') throw new Error('the insert has not completed the set');
    aggregate = mutated.aggregate;
    ms.push(rounded(mutated.ms, 1));
  }
  return { ms, aggregate };
}

/** 32 handoffs on as many pages. */
async function updateInPlace({ client, scale }: Bench, fleet: SyntheticFleet, before: Reference): Promise<Timed> {
  const keys = fleet.keys();
  const stride = Math.floor(keys.length / entriesPerPage);
  let aggregate = before;
  const ms: number[] = [];
  for (let round = 0; round < scale.updates; round += 1) {
    const some = Array.from({ length: entriesPerPage }, (_, index) => keys[index * stride + round]!);
    const mutated = await prepare(client, fleet, aggregate, some, 1024 * (round + 1));
    if (mutated.state !== 'complete') throw new Error('the update has not left the set complete');
    aggregate = mutated.aggregate;
    ms.push(rounded(mutated.ms, 1));
  }
  return { ms, aggregate };
}

/** Always the same order, so that two runs do the same. */
function shuffled(keys: SyntheticKey[]): SyntheticKey[] {
  const result = [...keys];
  let state = 1;
  for (let index = result.length - 1; index > 0; index -= 1) {
    // Lehmer's generator, as in C++'s minstd_rand.
    state = (state * 48_271) % 2_147_483_647;
    const other = state % (index + 1);
    [result[index], result[other]] = [result[other]!, result[index]!];
  }
  return result;
}
