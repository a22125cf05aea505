/** Authenticated page reads of the whole fleet over 32 connections, against a server that only parses and sends. */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import type { Reference } from '../../src/contract/schema.js';
import { sparkPost, type SyntheticFleet } from '../support/synthetic-fleet.js';
import type { BareServerOrder } from './bare-page-server.js';
import type { LoadOrder, LoadResult } from './http-load.js';
import { nextMessage } from './service-host.js';

export interface PageReads {
  readonly perSecond: number;
  readonly bare: number;
  readonly ratio: number;
}

const connections = 32;
const ROUNDS = 32;
const path = sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint;

export interface PageReadWork {
  readonly fleet: SyntheticFleet;
  readonly aggregate: Reference;
  readonly pageCount: number;
  readonly seconds: number;
}

export async function measurePageReads(url: string, work: PageReadWork): Promise<PageReads> {
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-bench-reads-'));
  const files = { bodies: join(directory, 'bodies.json'), answers: join(directory, 'answers.json') };
  const children: ChildProcess[] = [];
  const start = async (program: string): Promise<ChildProcess> => {
    const child = fork(new URL(program, import.meta.url), {
      execArgv: ['--import', 'tsx'],
      stdio: ['ignore', 2, 2, 'ipc'],
    });
    children.push(child);
    await nextMessage(child);
    return child;
  };
  try {
    const bodies = requestsOf(work);
    await writeFile(files.bodies, JSON.stringify(bodies));
    await writeFile(files.answers, JSON.stringify(await answersTo(url, bodies)));
    const generator = await start('./http-load.ts');
    const bareServer = await start('./bare-page-server.ts');
    bareServer.send({ path, ...files } satisfies BareServerOrder);
    const { url: bareUrl } = await nextMessage<{ url: string }>(bareServer);
    const rate = (target: string) => measure(generator, target, files.bodies, work.seconds / ROUNDS);
    const rates: number[] = [];
    const bareRates: number[] = [];
    // In turns, so that both see the same machine; the first turn is for warming up.
    for (let round = 0; round <= ROUNDS; round += 1) {
      rates.push(await rate(url));
      bareRates.push(await rate(bareUrl));
    }
    const perSecond = mean(rates.slice(1));
    const bare = mean(bareRates.slice(1));
    return { perSecond, bare, ratio: perSecond / bare };
  } finally {
    for (const child of children) child.kill();
    await rm(directory, { recursive: true, force: true });
  }
}

/** As many requests as there are pages: every page once, read by the nodes in turn, in an order without rhyme. */
function requestsOf({ fleet, aggregate, pageCount }: PageReadWork): string[] {
  return Array.from({ length: pageCount }, (_, index) => {
    const { nodeId, token } = fleet.nodes[index % fleet.nodes.length]!;
    // 2,654,435,761 is odd, so it visits each of a power of two of pages once; others lose nothing by a repetition.
    const pageIndex = (index * 2_654_435_761) % pageCount;
    return JSON.stringify({ nodeId, nodeToken: token, protocol: supportedProtocol, aggregate, pageIndex });
  });
}

async function answersTo(url: string, bodies: readonly string[]): Promise<string[]> {
  const answers: string[] = [];
  for (const body of bodies) {
    const { status, text } = await sparkPost<unknown>(url, path, JSON.parse(body));
    if (status !== 200) throw new Error(`page read: ${status} ${text}`);
    answers.push(text);
  }
  return answers;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

async function measure(generator: ChildProcess, url: string, bodies: string, seconds: number): Promise<number> {
  const { hostname, port } = new URL(url);
  const answer = nextMessage<LoadResult>(generator);
  generator.send({
    host: hostname,
    port: Number(port),
    path,
    bodies,
    connections,
    warmUpMs: seconds * 500,
    measureMs: seconds * 1000,
  } satisfies LoadOrder);
  const result = await answer;
  if (result.failures > 0) throw new Error(`${result.failures} page reads failed`);
  return (result.answers * 1000) / result.ms;
}
