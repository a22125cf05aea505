/** The prepared handoffs. Upserts come ready-made from the required list; one by hand is `call`. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type {
  IFleetCutoverPreparedVolumeHandoffAggregate,
  IFleetCutoverPreparedVolumeHandoffIntent,
} from '../contract/handoff.js';
import { referenceOf } from '../contract/schema.js';
import type { CommandHost } from './command-host.js';
import { type HandoffName, parseHandoff } from './handoff-argument.js';
import { commandGroup, mutation, query } from './method-command.js';
import { parseGeneration, parseIndex } from './number-argument.js';
import { UsageError } from './output.js';
import { referenceText } from './reference-text.js';
import { fields, table } from './terminal-text.js';

function aggregateLines(aggregate: IFleetCutoverPreparedVolumeHandoffAggregate, behind: boolean): string[] {
  return fields([
    ['aggregate', referenceText(aggregate)],
    ['state', `${aggregate.state}${behind ? ', behind' : ''}`],
    ['handoffs', `${aggregate.actualCount} of ${aggregate.requiredCount} required`],
    ['pages', aggregate.pageCount],
  ]);
}

/** `aggregate show|page|rederive` */
export function registerAggregate(program: CommandUnknownOpts, host: CommandHost): void {
  const aggregate = commandGroup(program, 'aggregate', 'the revisioned header of all prepared handoffs');
  query(host, aggregate.command('show').description('the current header'), 'readFleetCutoverVolumeHandoffAggregate', {
    request: () => ({ aggregate: null }),
    lines: (answer) =>
      answer.aggregate === null ? ['no aggregate yet'] : aggregateLines(answer.aggregate, answer.behind),
  });
  query(
    host,
    aggregate
      .command('page')
      .description('one page of the current aggregate, which has to be complete')
      .argument('<index>', 'from 0', parseIndex),
    'readFleetCutoverVolumeHandoffPage',
    {
      request: async ({ args: [pageIndex], client, clusterId }) => {
        const current = await client.readFleetCutoverVolumeHandoffAggregate({ clusterId, aggregate: null });
        if (current.aggregate === null) throw new UsageError('the cluster has no aggregate yet, and no pages');
        return { aggregate: referenceOf(current.aggregate), pageIndex };
      },
      lines: ({ page }) => [
        ...fields([
          ['aggregate', referenceText(page.aggregate)],
          ['page', `${page.pageIndex}, content ${page.contentDigest}`],
        ]),
        ...table(page.handoffs, [
          ['node', (each) => each.nodeId],
          ['handoff', (each) => each.id],
          ['generation', (each) => each.generation],
          ['digest', (each) => each.digest],
        ]),
      ],
    },
  );
  mutation(
    host,
    aggregate
      .command('rederive')
      .description('make the next revision from current evidence; coverage begins anew, no handoff changes'),
    'rederiveFleetCutoverVolumeHandoffs',
    { request: () => ({}), lines: (answer) => aggregateLines(answer.aggregate, false) },
  );
}

function handoffLines(handoff: IFleetCutoverPreparedVolumeHandoffIntent, current: boolean): string[] {
  return fields([
    ['handoff', `${referenceText(handoff)}${current ? '' : ', not the current one'}`],
    ['node', handoff.nodeId],
    ['service', handoff.serviceId],
    ['mount path', handoff.claimIntent.binding.request.mountPath],
    ['mount', handoff.observedMount.mountIdentityDigest],
    ['volume', handoff.volumeId],
  ]);
}

/** `handoff show|remove` */
export function registerHandoff(program: CommandUnknownOpts, host: CommandHost): void {
  const handoff = commandGroup(program, 'handoff', 'single prepared handoffs');
  query(
    host,
    handoff
      .command('show')
      .description('one handoff, current or of one generation')
      .argument('<node/id>', 'the handoff', parseHandoff)
      .option('--generation <n>', 'not the current one', parseGeneration),
    'readFleetCutoverVolumeHandoff',
    {
      request: ({ args: [name], options }) => ({ ...name, generation: options.generation ?? null }),
      lines: (answer) => handoffLines(answer.handoff, answer.current),
    },
  );
  mutation(
    host,
    handoff
      .command('remove')
      .description('remove prepared handoffs, at most 32 together')
      .argument('<node/id...>', 'the handoffs', (text: string, before: HandoffName[] | undefined) => [
        ...(before ?? []),
        parseHandoff(text),
      ]),
    'prepareFleetCutoverVolumeHandoffs',
    {
      request: async ({ args: [names], client, clusterId }) => {
        const removals = [];
        for (const name of names) {
          const found = await client.readFleetCutoverVolumeHandoff({ clusterId, ...name, generation: null });
          const { nodeId, serviceId, observedMount } = found.handoff;
          removals.push({ nodeId, serviceId, mountIdentityDigest: observedMount.mountIdentityDigest });
        }
        return { upserts: [], removals };
      },
      lines: (answer) => [
        ...answer.handoffs.map(({ nodeId, id, change }) => `${nodeId}/${id}: ${change}`),
        ...aggregateLines(answer.aggregate, false),
      ],
    },
  );
}
