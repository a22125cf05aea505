/** `required` while the evidence keeps changing: the list is that of exactly one derivation, as SQL over the rows tells it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AnswerProxy, openAnswerProxy } from '../../src/demo/answer-proxy.js';
import type { IFleetCutoverRequiredEntry } from '../../src/contract/derivation.js';
import type { Reference } from '../../src/contract/schema.js';
import { environmentOf, runCommand } from '../support/command-line.js';
import { startService, type TestService } from '../support/service.js';
import {
  container,
  prepareKeys,
  type SyntheticFleet,
  syntheticFleet,
  volumeMount,
  volumesOf,
} from '../support/synthetic-fleet.js';

interface Listed {
  readonly derivation: Reference;
  readonly aggregate: Reference | null;
  readonly entries: readonly IFleetCutoverRequiredEntry[];
  readonly nextCursor: string | null;
  readonly counts: Readonly<Record<string, number>>;
}

const clusterId = 'listed';
const listPath = '/requests/fleetcutover/listFleetCutoverRequiredVolumeHandoffs';
let service: TestService;
let fleet: SyntheticFleet;
let proxy: AnswerProxy;
/** What the world does after each page. */
let afterPage: (page: number) => Promise<void> = () => Promise.resolve();
let pages = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  fleet = await syntheticFleet(service, { clusterId, nodes: 3, volumesPerNode: [1_000, 40, 1_500], services: 2 });
  proxy = await openAnswerProxy(service.url, async ({ path, body }) => {
    if (path === listPath) {
      pages += 1;
      await afterPage(pages);
    }
    return body;
  });
});
afterAll(async () => {
  await proxy.close();
  await service.close();
});

async function list(...more: string[]): Promise<Listed> {
  pages = 0;
  const end = await runCommand(environmentOf({ url: proxy.url, token: service.token }), [
    'required',
    '--cluster',
    clusterId,
    '--json',
    ...more,
  ]);
  expect([end.code, end.stderr]).toEqual([0, '']);
  return JSON.parse(end.stdout) as Listed;
}

/** `<node> <id> <state> <blockers>` of every entry at the two generations, from the rows alone. */
async function oracle(derivation: number, aggregate: number): Promise<string[]> {
  const { rows } = await service.database.owner.query<{ line: string }>(
    `with required as (
       select node_id, handoff_id from control.required_entries
       where cluster_id = $1 and since <= $2 and (until is null or until > $2)
     ), prepared as (
       select revision.node_id, revision.handoff_id from control.handoff_revisions revision
       where cluster_id = $1 and aggregate_generation <= $3 and record is not null and not exists (
         select from control.handoff_revisions later where later.cluster_id = $1 and later.node_id = revision.node_id
           and later.handoff_id = revision.handoff_id and later.aggregate_generation <= $3
           and later.aggregate_generation > revision.aggregate_generation)
     ), blocked as (
       select handoff_id, string_agg(distinct code, ',' order by code) as codes from control.blockers
       where cluster_id = $1 and since <= $2 and (until is null or until > $2) group by handoff_id
     )
     select concat_ws(' ', node_id, handoff_id,
       case when one is null then 'surplus' when two is null then 'missing' else 'prepared' end,
       codes) as line
     from (select 1 as one, * from required) as required
     full join (select 1 as two, * from prepared) as prepared using (node_id, handoff_id)
     left join blocked using (handoff_id)`,
    [clusterId, derivation, aggregate],
  );
  return rows.map(({ line }) => line).sort();
}

const linesOf = (entries: Listed['entries']) =>
  entries.map(({ nodeId, id, state, blockers }) =>
    [nodeId, id, state, ...(blockers.length > 0 ? [blockers.join(',')] : [])].join(' '),
  );

describe('required', () => {
  it('shows one derivation and one aggregate while both keep changing', { timeout: 120_000 }, async () => {
    await prepareKeys(service, fleet, null, fleet.keys().slice(0, 320));
    const [first, , last] = fleet.nodes;
    let aggregate: Reference | null = null;
    afterPage = async (page) => {
      // Before and behind the place where the list is: keys come, are blocked, and are prepared.
      const intruder = container(`intruder-${page}`, [volumeMount('v000007', '/x'), volumeMount('v000900', '/y')]);
      await fleet.report(first!.nodeId, { volumes: volumesOf(1_000 + 10 * page, 2), otherContainers: [intruder] });
      await fleet.report(last!.nodeId, { volumes: volumesOf(1_500 + 10 * page, 2), otherContainers: [intruder] });
      const { aggregate: current } = await service.done('readFleetCutoverState', { clusterId });
      const { id, generation, digest } = current!;
      aggregate = await prepareKeys(
        service,
        fleet,
        { id, generation, digest },
        fleet.keys().slice(-32 * page, -32 * page + 31),
      );
    };
    const listed = await list();
    afterPage = () => Promise.resolve();
    expect(pages).toBe(3);
    const state = await service.done('readFleetCutoverState', { clusterId });
    expect(state.derivation.generation).toBeGreaterThan(listed.derivation.generation + 2);
    expect(aggregate!.generation).toBeGreaterThan(listed.aggregate!.generation + 2);

    const expected = await oracle(listed.derivation.generation, listed.aggregate!.generation);
    expect(expected).toHaveLength(2_540);
    expect(linesOf(listed.entries)).toEqual(expected);
    expect(listed.counts).toMatchObject({
      required: 2_540,
      prepared: 320,
      missing: 2_220,
      surplus: 0,
      blocked: 0,
      shown: 2_540,
    });

    // The oracle tells derivations apart: the next list is another one.
    const next = await list();
    expect(linesOf(next.entries)).toEqual(await oracle(next.derivation.generation, next.aggregate!.generation));
    expect(linesOf(next.entries)).not.toEqual(expected);
    expect(next.counts['blocked']).toBe(4);
  });

  it('shows a part of it, and counts the whole', async () => {
    const whole = await list();
    const of = (entries: Listed['entries']) => entries.map(({ id }) => id);
    const blocked = await list('--blocked');
    expect(of(blocked.entries)).toEqual(of(whole.entries.filter(({ blockers }) => blockers.length > 0)));
    expect(blocked.counts).toEqual({ ...whole.counts, shown: 4 });
    const { nodeId } = fleet.nodes[1]!;
    const some = await list('--state', 'missing', '--node', nodeId);
    expect(of(some.entries)).toEqual(
      of(whole.entries.filter((each) => each.nodeId === nodeId && each.state === 'missing')),
    );
    expect(some.entries.length).toBe(40);
    expect((await list('--node', 'nobody')).entries).toEqual([]);
    expect((await list('--state', 'surplus')).entries).toEqual([]);
  });

  it('ends where it was asked to, with the cursor that goes on from there', async () => {
    const whole = await list();
    expect(whole.nextCursor).toBeNull();
    const some = await list('--limit', '1100');
    expect(some.entries).toEqual(whole.entries.slice(0, 1_100));
    expect(some.counts).toMatchObject({ required: 1_100, shown: 1_100 });
    const of = (entries: Listed['entries']) => entries.filter(({ blockers }) => blockers.length > 0);
    const blocked = await list('--blocked', '--limit', '3');
    expect(blocked.entries).toEqual(of(whole.entries).slice(0, 3));
    for (const { entries, nextCursor } of [some, blocked]) {
      const next = await service.done('listFleetCutoverRequiredVolumeHandoffs', {
        clusterId,
        cursor: nextCursor,
        limit: 1,
      });
      const last = whole.entries.findIndex(({ id }) => id === entries.at(-1)!.id);
      expect(next.entries).toEqual([whole.entries[last + 1]]);
    }
    // The last one that there is, and more than there are: the list has ended.
    expect(await list('--blocked', '--limit', '4')).toMatchObject({ counts: { shown: 4 } });
    expect(await list('--limit', '100000')).toEqual(whole);
    expect((await runCommand(environmentOf(service), ['required', '--cluster', clusterId, '--limit', '0'])).code).toBe(
      2,
    );
  });

  it('prints lines for people, and is usage without a cluster or with a state that is none', async () => {
    const args = ['required', '--cluster', clusterId, '--blocked'];
    const end = await runCommand(environmentOf(service), args);
    expect(end.code).toBe(0);
    expect(end.stdout.split('\n').filter((line) => line.includes('BLOCKED overlap-container'))).toHaveLength(4);
    expect(end.stdout).toMatch(/^derivation \S+ generation \d+, aggregate \S+ generation \d+\n/);
    expect(end.stdout).toMatch(/\n4 shown; [\d,]+ required: .* 4 blocked\n$/);
    expect((await runCommand(environmentOf(service), ['required'])).code).toBe(2);
    expect((await runCommand(environmentOf(service), [...args, '--state', 'lost'])).code).toBe(2);
    const unknown = await runCommand(environmentOf(service), ['required', '--cluster', 'nowhere', '--json']);
    expect([unknown.code, unknown.stdout]).toEqual([1, '']);
  });
});
