/** Load that goes on while everything around it is killed, and the books that it keeps of what it was told. */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type FaultFleet, nextReport, prepareBody, upsertOf } from './fault-fleet.js';
import {
  type AnswerBody,
  observationPath,
  oracleMutationId,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
} from './oracle-http.js';
import { canonicalText } from './oracle-digest.js';
import { countRows } from './oracle-outcome.js';
import { readWholeRevision } from './oracle-pages.js';

/** One mutation that was sent until its answer was certain. */
interface Settled {
  readonly method: string;
  readonly body: { readonly mutationId: string };
  readonly outcome: 'acknowledged' | 'refused';
  readonly answer: AnswerBody;
}

export interface Books {
  readonly settled: Settled[];
  /** Sent at least once. */
  readonly sent: Set<string>;
  /** Of each node the last sequence that was answered. */
  readonly reported: Map<string, number>;
  /** Answers that nothing explains. */
  readonly serverErrors: string[];
  /** Readers that saw no whole revision, and whatever else must not be. */
  readonly wrong: string[];
  wholeReads: number;
}

export interface Load {
  readonly books: Books;
  /** Lets what is under way settle. */
  stop(): Promise<void>;
}

/** Transient: said with a promise that the same request may be sent again, or not said at all. */
function isTransient({ status, body }: RawAnswer): boolean {
  return (
    status === 0 || (status === 503 && body?.retrySafe === true) || (status === 503 && body?.code === 'unavailable')
  );
}

export interface LoadOptions {
  readonly writers: number;
}

export function startLoad(client: RawClient, fleet: FaultFleet, from: Reference, options: LoadOptions): Load {
  const books: Books = {
    settled: [],
    sent: new Set(),
    reported: new Map(),
    serverErrors: [],
    wrong: [],
    wholeReads: 0,
  };
  let running = true;
  let head = from;
  let serial = 0;

  /** The same request until it is known what became of it. */
  async function settle(method: string, body: { mutationId: string }): Promise<RawAnswer> {
    books.sent.add(body.mutationId);
    for (;;) {
      const answer = await client.owner(method, body);
      if (isTransient(answer)) {
        await sleep(20);
        continue;
      }
      if (answer.status === 200) books.settled.push({ method, body, outcome: 'acknowledged', answer: answer.body });
      else if (answer.status === 409) books.settled.push({ method, body, outcome: 'refused', answer: answer.body });
      else books.serverErrors.push(`${method}: ${answer.status} ${answer.text}`);
      return answer;
    }
  }

  async function prepareAgain(writer: number): Promise<void> {
    while (running) {
      serial += 1;
      const upserts = [upsertOf(fleet.keys[(writer * 7 + serial) % fleet.keys.length]!, serial)];
      const answer = await settle(
        'prepareFleetCutoverVolumeHandoffs',
        prepareBody(fleet, { expectedAggregate: head, upserts }),
      );
      const told: Reference | undefined =
        answer.status === 200 ? referenceIn(answer.body.aggregate) : answer.body?.current;
      if (told !== undefined && told !== null && (told.generation > head.generation || answer.status === 409))
        head = told;
    }
  }

  async function createServices(): Promise<void> {
    while (running) {
      const mutationId = oracleMutationId('svc');
      await settle('createService', { mutationId, name: mutationId } as { mutationId: string });
      await sleep(5);
    }
  }

  async function report(position: number): Promise<void> {
    const node = fleet.nodes[position]!;
    while (running) {
      const body = nextReport(fleet, node, `${node.sequence}`);
      for (;;) {
        const answer = await client.spark(observationPath, body);
        if (answer.status === 200) books.reported.set(node.nodeId, node.sequence);
        else if (isTransient(answer)) {
          await sleep(20);
          continue;
        } else books.serverErrors.push(`report: ${answer.status} ${answer.text}`);
        break;
      }
      await sleep(10);
    }
  }

  async function read(): Promise<void> {
    while (running) {
      try {
        if ((await readWholeRevision(client, fleet.nodes[1]!)) !== null) books.wholeReads += 1;
      } catch (error) {
        const text = String(error);
        if (/page read: (0|503) /.test(text)) await sleep(20);
        else if (/page read: 5/.test(text)) books.serverErrors.push(text);
        else books.wrong.push(text);
      }
      await sleep(5);
    }
  }

  const workers = [
    ...Array.from({ length: options.writers }, (_, writer) => prepareAgain(writer)),
    createServices(),
    ...fleet.nodes.map((_, position) => report(position)),
    read(),
  ];
  return {
    books,
    stop: async () => {
      running = false;
      await Promise.all(workers);
    },
  };
}

export interface Audit {
  readonly acknowledged: number;
  readonly lost: string[];
  readonly doubled: string[];
  readonly wrong: string[];
}

/** Compares the books with the tables, read as their owner, and with what replays say. */
export async function auditBooks(
  client: RawClient,
  owner: pg.Pool,
  fleet: FaultFleet,
  from: Reference,
  books: Books,
): Promise<Audit> {
  const acknowledged = books.settled.filter((each) => each.outcome === 'acknowledged');
  const lost: string[] = [];
  const doubled: string[] = [];
  const wrong = [...books.wrong];
  const rows = await rowsByMutation(owner);
  for (const { method, body, answer } of acknowledged) {
    const results = rows.get(body.mutationId) ?? [];
    if (results.length === 0) lost.push(`${method} ${body.mutationId}`);
    if (results.length > 1) doubled.push(`${method} ${body.mutationId} has ${results.length} rows`);
    if (results.length === 1 && !containsResult(answer, results[0]!))
      wrong.push(`${body.mutationId} was answered otherwise than it is recorded`);
  }
  for (const { body, outcome } of books.settled) {
    if (outcome === 'refused' && rows.has(body.mutationId))
      doubled.push(`${body.mutationId} was refused, and it is there`);
  }
  doubled.push(...(await foreignRevisions(owner, fleet, from, books, rows)));
  wrong.push(...(await brokenChain(owner, fleet)));
  const services = await countRows(owner, 'services', `name like 'svc-%'`);
  const created = [...rows.keys()].filter((id) => id.startsWith('svc-')).length;
  if (services > created) doubled.push(`${services} services for ${created} mutations`);
  if (services < created) lost.push(`${services} services for ${created} mutations`);
  for (const [nodeId, sequence] of books.reported) {
    const known = await countRows(owner, 'nodes', `node_id = '${nodeId}' and observation_sequence >= ${sequence}`);
    if (known !== 1) lost.push(`the report ${sequence} of ${nodeId}`);
  }
  // Of the newest and some others, what a repetition says.
  for (const { method, body, answer } of acknowledged.filter(
    (_, index) => index % 20 === 0 || index > acknowledged.length - 20,
  )) {
    const again = await client.owner(method, body);
    const same =
      again.status === 200 &&
      again.body.replayed === true &&
      canonicalText(resultOf(again.body)) === canonicalText(resultOf(answer));
    if (!same && rows.has(body.mutationId))
      wrong.push(`${body.mutationId} is replayed as ${again.status} ${again.text}`);
  }
  return { acknowledged: acknowledged.length, lost, doubled, wrong };
}

function resultOf(answer: AnswerBody): object {
  const { replayed: _replayed, current: _current, dryRun: _dryRun, secrets: _secrets, ...rest } = answer;
  return rest;
}

function containsResult(answer: AnswerBody, result: string): boolean {
  const recorded = JSON.parse(result) as Record<string, unknown>;
  return Object.keys(recorded).every((key) => canonicalText(answer[key]) === canonicalText(recorded[key]));
}

async function rowsByMutation(owner: pg.Pool): Promise<Map<string, string[]>> {
  const { rows } = await owner.query<{ mutation_id: string; result: string }>(
    'select mutation_id, result from control.audit_rows',
  );
  const byId = new Map<string, string[]>();
  for (const { mutation_id: id, result } of rows) byId.set(id, [...(byId.get(id) ?? []), result]);
  return byId;
}

/** Revisions that no mutation of ours made, and two of one mutation. */
async function foreignRevisions(
  owner: pg.Pool,
  fleet: FaultFleet,
  from: Reference,
  books: Books,
  rows: Map<string, string[]>,
): Promise<string[]> {
  const makers = new Map<number, string[]>();
  for (const [id, results] of rows) {
    for (const result of results) {
      const { aggregate } = JSON.parse(result) as { aggregate?: { clusterId: string; generation: number } };
      if (aggregate?.clusterId === fleet.clusterId)
        makers.set(aggregate.generation, [...(makers.get(aggregate.generation) ?? []), id]);
    }
  }
  const revisions = await owner.query<{ generation: string }>(
    'select generation from control.aggregate_revisions where cluster_id = $1 and generation > $2',
    [fleet.clusterId, from.generation],
  );
  return revisions.rows.flatMap(({ generation }) => {
    const ids = makers.get(Number(generation)) ?? [];
    if (ids.length === 1 && books.sent.has(ids[0]!)) return [];
    return [`revision ${generation} was made by ${ids.join(' and ') || 'nobody'}`];
  });
}

/** Generations without a gap, each with the one before as its predecessor, and the head as the last. */
async function brokenChain(owner: pg.Pool, fleet: FaultFleet): Promise<string[]> {
  const { rows } = await owner.query<{ record: string; digest: string }>(
    'select record, digest from control.aggregate_revisions where cluster_id = $1 order by generation',
    [fleet.clusterId],
  );
  const faults: string[] = [];
  rows.forEach(({ record }, index) => {
    const { generation, predecessor } = JSON.parse(record) as { generation: number; predecessor: Reference | null };
    if (generation !== index + 1) faults.push(`generation ${generation} stands at ${index + 1}`);
    if ((predecessor?.digest ?? null) !== (rows[index - 1]?.digest ?? null))
      faults.push(`generation ${generation} names another predecessor`);
  });
  const head = await countRows(
    owner,
    'aggregate_heads',
    `cluster_id = '${fleet.clusterId}' and generation = ${rows.length} and digest = '${rows.at(-1)?.digest}'`,
  );
  return head === 1 ? faults : [...faults, 'the head is not the last revision'];
}
