/** Coverage of all pages by all nodes of a draining fleet, and one node's report in a small and in a large fleet. */
import { Pool } from 'undici';
import { fleetCutoverContract, sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { ISparkSwarmObservationAcceptedReceipt } from '../../src/contract/observation.js';
import { type DrainingFleet, drainingFleet } from './draining-fleet.js';
import type { OwnerClient } from './owner-client.js';
import { quantile, rounded } from './quantile.js';
import type { HeldFenceScale } from './scale.js';

export interface HeldFences {
  /** While every node reports every page. */
  readonly reportsPerSecond: number;
  /** Until every page is covered by every node: 100 nodes and 256 pages at full scale. */
  readonly fullCoverageMs: number;
  /** Median milliseconds of one report by the fleet's size at full scale, with as many pages and as large a share. */
  readonly oneReportMs: { readonly nodes10: number; readonly nodes1000: number; readonly ratio: number };
}

type Say = (line: string) => void;
type Send = (body: string) => Promise<ISparkSwarmObservationAcceptedReceipt['heldVolumeFences']>;

const connections = 32;
const entriesPerPage = fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries;

export async function measureHeldFences(client: OwnerClient, scale: HeldFenceScale, say: Say): Promise<HeldFences> {
  const pool = new Pool(client.url, { connections, headersTimeout: 120_000, bodyTimeout: 120_000 });
  const send: Send = async (body) => {
    const answer = await pool.request({
      path: sparkSwarmNodeContracts.swarmObservation.endpoint,
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    const text = await answer.body.text();
    if (answer.statusCode !== 200) throw new Error(`report: ${answer.statusCode} ${text}`);
    const { heldVolumeFences } = JSON.parse(text) as ISparkSwarmObservationAcceptedReceipt;
    if (heldVolumeFences.state !== 'accepted') throw new Error(`the evidence does not count: ${text}`);
    return heldVolumeFences;
  };
  try {
    const coverage = await coverEverything(client, send, scale, say);
    return { ...coverage, oneReportMs: await compareFleets(client, send, scale, say) };
  } finally {
    await pool.close();
  }
}

async function coverEverything(
  client: OwnerClient,
  send: Send,
  scale: HeldFenceScale,
  say: Say,
): Promise<Pick<HeldFences, 'reportsPerSecond' | 'fullCoverageMs'>> {
  const volumesPerNode = evenly(scale.pages * entriesPerPage, scale.nodes);
  const fleet = await drainingFleet(client, { clusterId: 'covered', volumesPerNode });
  expectPages(fleet, scale);
  const every = Array.from({ length: fleet.pageCount }, (_, pageIndex) => pageIndex);
  const queues = fleet.nodes.map((node) => every.map((pageIndex) => fleet.nextReport(node, pageIndex)));
  const reports = scale.nodes * fleet.pageCount;
  say(`covered: ${scale.nodes} nodes drain, ${reports} reports are to be sent`);
  const started = performance.now();
  const covered = await sendAll(send, queues);
  const ms = performance.now() - started;
  if (covered.some((pages) => pages !== fleet.pageCount)) throw new Error('not every node has covered every page');
  const result = { reportsPerSecond: rounded((reports * 1000) / ms, 0), fullCoverageMs: rounded(ms, 0) };
  say(`covered: ${result.fullCoverageMs} ms, ${result.reportsPerSecond} reports/s`);
  return result;
}

/**
 * Both fleets have as many pages, and their first node the same share. All nodes but it have reported the pages that they
 * hold, so every node has its row of coverage. Most pages of a node are empty in a large fleet: those are the timed ones.
 */
async function compareFleets(
  client: OwnerClient,
  send: Send,
  scale: HeldFenceScale,
  say: Say,
): Promise<HeldFences['oneReportMs']> {
  const few = await comparedFleet(client, send, 'few-nodes', scale.fewNodes, scale);
  const many = await comparedFleet(client, send, 'many-nodes', scale.manyNodes, scale);
  say(`${scale.fewNodes} and ${scale.manyNodes} nodes drain, with what they hold reported`);
  const held = await timeInTurns(send, few, many, few.heldPages(few.nodes[0]!));
  say(`a report of ${entriesPerPage} fences: ${rounded(held.few)} ms and ${rounded(held.many)} ms`);
  const empty = Array.from({ length: scale.timedReports }, (_, index) => scale.pages - scale.timedReports + index);
  const timed = await timeInTurns(send, few, many, empty);
  say(`a report of an empty page: ${rounded(timed.few)} ms and ${rounded(timed.many)} ms`);
  return { nodes10: rounded(timed.few), nodes1000: rounded(timed.many), ratio: rounded(timed.many / timed.few) };
}

async function comparedFleet(
  client: OwnerClient,
  send: Send,
  clusterId: string,
  nodes: number,
  scale: HeldFenceScale,
): Promise<DrainingFleet> {
  // Whole pages of its own: pages are in node order.
  const first = (scale.pages - scale.timedReports) * entriesPerPage;
  const others = evenly(scale.timedReports * entriesPerPage, nodes - 1);
  const fleet = await drainingFleet(client, { clusterId, volumesPerNode: [first, ...others], services: 1 });
  expectPages(fleet, scale);
  await sendAll(
    send,
    fleet.nodes.slice(1).map((node) => fleet.heldPages(node).map((pageIndex) => fleet.nextReport(node, pageIndex))),
  );
  return fleet;
}

function expectPages({ pageCount }: DrainingFleet, scale: HeldFenceScale): void {
  if (pageCount !== scale.pages) throw new Error(`the aggregate has ${pageCount} pages, not ${scale.pages}`);
}

/** Median milliseconds of the first node's reports, one at a time, in turns, so that both fleets see the same machine. */
async function timeInTurns(
  send: Send,
  few: DrainingFleet,
  many: DrainingFleet,
  pages: readonly number[],
): Promise<{ readonly few: number; readonly many: number }> {
  const timed = async (fleet: DrainingFleet, pageIndex: number): Promise<number> => {
    const body = fleet.nextReport(fleet.nodes[0]!, pageIndex);
    const started = performance.now();
    await send(body);
    return performance.now() - started;
  };
  const times = { few: [] as number[], many: [] as number[] };
  for (const [index, pageIndex] of pages.entries()) {
    const fewFirst = index % 2 === 0;
    if (fewFirst) times.few.push(await timed(few, pageIndex));
    times.many.push(await timed(many, pageIndex));
    if (!fewFirst) times.few.push(await timed(few, pageIndex));
  }
  return { few: quantile(times.few, 0.5), many: quantile(times.many, 0.5) };
}

/** Each queue is one node's: in its order, one at a time. All nodes take turns. Gives the pages that each has covered. */
async function sendAll(send: Send, queues: readonly (readonly string[])[]): Promise<number[]> {
  const covered = queues.map(() => 0);
  const waiting = queues.map((bodies, node) => ({ node, bodies: bodies.values() }));
  const work = async (): Promise<void> => {
    for (let queue = waiting.shift(); queue !== undefined; queue = waiting.shift()) {
      const { value, done } = queue.bodies.next();
      if (done === true) continue;
      covered[queue.node] = (await send(value)).coveredPages;
      waiting.push(queue);
    }
  };
  await Promise.all(Array.from({ length: connections }, work));
  return covered;
}

/** The volumes' number for each node, as equal as can be. */
function evenly(volumes: number, nodes: number): number[] {
  return Array.from({ length: nodes }, (_, index) => Math.floor(volumes / nodes) + (index < volumes % nodes ? 1 : 0));
}
