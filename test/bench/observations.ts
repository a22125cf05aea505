/** Reports of the largest size, with and without a change, and how long they hold the service's event loop up. */
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import type { SyntheticFleet, SyntheticNodeContent } from '../support/synthetic-fleet.js';
import { syntheticFleet, volumesOf } from '../support/synthetic-fleet.js';
import type { OwnerClient } from './owner-client.js';
import { quantile } from './quantile.js';
import type { ServiceHost } from './service-host.js';

export interface Observations {
  readonly unchangedMs: number;
  readonly changedMs: number;
  readonly longestDelayMs: number;
}

const services = 64;

export async function measureObservations(
  host: ServiceHost,
  client: OwnerClient,
  work: { readonly bytes: number; readonly rounds: number },
): Promise<Observations> {
  const fleet = await syntheticFleet(client, { clusterId: 'observed', nodes: 1, volumesPerNode: 64, services });
  const { nodeId } = fleet.nodes[0]!;
  const full = contentOfSize(fleet, nodeId, work.bytes);
  // Before the first large one: it starts the threads that take such reports.
  await host.resetDelay();
  await fleet.report(nodeId, full);
  const unchanged: number[] = [];
  const changed: number[] = [];
  for (let round = 0; round < work.rounds; round += 1) {
    unchanged.push(await timed(() => fleet.report(nodeId, full)));
    const last = full.looseVolumes!.length - 1;
    const other = full.looseVolumes!.with(last, `changed-${String(round).padStart(24, '0')}`);
    changed.push(await timed(() => fleet.report(nodeId, { ...full, looseVolumes: other })));
    await fleet.report(nodeId, full);
  }
  const { longestDelayMs } = await host.measure();
  return { unchangedMs: quantile(unchanged, 0.5), changedMs: quantile(changed, 0.5), longestDelayMs };
}

/** Half of the bytes are mounted volumes, the rest volumes that nobody mounts. */
function contentOfSize(fleet: SyntheticFleet, nodeId: string, bytes: number): SyntheticNodeContent {
  const sizeOf = (content: SyntheticNodeContent) =>
    Buffer.byteLength(canonicalizeStrictJson(fleet.localSnapshot(nodeId, content)));
  const loose = (count: number) =>
    Array.from({ length: count }, (_, index) => `loose-${String(index).padStart(26, '0')}`);
  const empty = sizeOf({ volumes: [], looseVolumes: [] });
  const perMounted = (sizeOf({ volumes: volumesOf(2_048, services) }) - empty) / 2_048;
  const volumes = volumesOf(Math.floor((bytes - empty) / 2 / perMounted), services);
  const base = sizeOf({ volumes, looseVolumes: [] });
  const perLoose = (sizeOf({ volumes, looseVolumes: loose(1_000) }) - base) / 1_000;
  return { volumes, looseVolumes: loose(Math.floor((bytes - base) / perLoose) - 1) };
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}
