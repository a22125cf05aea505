import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { IFleetCutoverRequiredEntry } from '../../contract/derivation.js';
import { withClient } from '../client-session.js';
import { type CommandHost, guarded } from '../command-host.js';
import { addConnectionOptions, clusterOption } from '../connection-options.js';
import { parseLimit } from '../every-page.js';
import { namedFor } from '../method-command.js';
import { jsonOutputOption } from '../output.js';
import { clusterOf } from '../settings.js';
import { jsonText } from '../terminal-text.js';
import { requiredPagesShowing } from './required-pages.js';
import {
  countEntry,
  countsLine,
  type EntryCounts,
  type EntryFilter,
  entryLine,
  entryStates,
  isShown,
  noEntries,
  tableHeader,
} from './required-table.js';

/** `required --cluster ID [--state STATE] [--blocked] [--node ID] [--limit N]` */
export function registerRequired(program: CommandUnknownOpts, host: CommandHost): void {
  const command = program
    .command('required')
    .description('what is required and what of it is prepared, at one derivation, however long the list')
    .addOption(clusterOption())
    .addOption(new Option('--state <state>', 'only entries in this state').choices(entryStates))
    .option('--blocked', 'only entries that something blocks')
    .option('--node <id>', 'only entries of this node')
    .addOption(new Option('--limit <n>', 'show no more than this (default: all)').argParser(parseLimit))
    .addOption(jsonOutputOption())
    .addHelpText('after', '\nIt counts the whole list, whatever of it is shown; with --limit as far as it was read.');
  namedFor(command, 'listFleetCutoverRequiredVolumeHandoffs');
  addConnectionOptions(command).action((options) =>
    guarded(host, options.json === true, async () => {
      const filter = {
        state: options.state ?? null,
        blocked: options.blocked === true,
        nodeId: options.node ?? null,
      };
      const print = options.json === true ? printJson : printTable;
      await withClient(host, options, async (client, settings) => {
        const clusterId = clusterOf(settings);
        const pages = requiredPagesShowing(
          (request) => client.listFleetCutoverRequiredVolumeHandoffs(request),
          clusterId,
          {
            isShown: (entry) => isShown(entry, filter),
            limit: options.limit ?? null,
            signal: host.outputClosed,
          },
        );
        await print(host, pages, filter, clusterId);
      });
    }),
  );
}

type Pages = ReturnType<typeof requiredPagesShowing>;

async function printTable(host: CommandHost, pages: Pages, filter: EntryFilter): Promise<void> {
  const counts = noEntries();
  let next: string | null = null;
  let first = true;
  for await (const { derivation, aggregate, entries, nextCursor } of pages) {
    if (first) {
      const prepared =
        aggregate === null ? 'no aggregate' : `aggregate ${aggregate.id} generation ${aggregate.generation}`;
      host.stdout(`derivation ${derivation.id} generation ${derivation.generation}, ${prepared}\n${tableHeader}\n`);
      first = false;
    }
    const shown = count(counts, entries, filter);
    host.stdout(shown.map((entry) => `${entryLine(entry)}\n`).join(''));
    next = nextCursor;
  }
  if (next !== null) host.stdout(`… there may be more than these ${counts.shown}\n`);
  host.stdout(`${countsLine(counts)}\n`);
}

/** One document, written as its pages arrive: the longest list has more than a hundred thousand entries. */
async function printJson(host: CommandHost, pages: Pages, filter: EntryFilter, clusterId: string): Promise<void> {
  const counts = noEntries();
  let next: string | null = null;
  let first = true;
  for await (const { derivation, aggregate, entries, nextCursor } of pages) {
    if (first) {
      const head = jsonText({ clusterId, derivation, aggregate });
      host.stdout(`${head.slice(0, -1)},"entries":[`);
      first = false;
    }
    const separator = counts.shown > 0 ? ',' : '';
    const shown = count(counts, entries, filter);
    if (shown.length > 0) host.stdout(separator + shown.map((entry) => jsonText(entry)).join(','));
    next = nextCursor;
  }
  host.stdout(`],"nextCursor":${jsonText(next)},"counts":${jsonText(counts)}}\n`);
}

/** Adds a page to the counts, and gives what is shown of it. */
function count(
  counts: EntryCounts,
  entries: readonly IFleetCutoverRequiredEntry[],
  filter: EntryFilter,
): IFleetCutoverRequiredEntry[] {
  for (const entry of entries) countEntry(counts, entry);
  const shown = entries.filter((entry) => isShown(entry, filter));
  counts.shown += shown.length;
  return shown;
}
