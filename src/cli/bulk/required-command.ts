import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../../client/administrator-client.js';
import { withClient } from '../client-session.js';
import { type CommandHost, guarded } from '../command-host.js';
import { addConnectionOptions, clusterOption } from '../connection-options.js';
import { namedFor } from '../method-command.js';
import { jsonOutputOption } from '../output.js';
import { clusterOf } from '../settings.js';
import { jsonText } from '../terminal-text.js';
import { requiredPages } from './required-pages.js';
import {
  countEntry,
  countsLine,
  type EntryFilter,
  entryLine,
  entryStates,
  isShown,
  noEntries,
  tableHeader,
} from './required-table.js';

/** `required --cluster ID [--state STATE] [--blocked] [--node ID]` */
export function registerRequired(program: CommandUnknownOpts, host: CommandHost): void {
  const command = program
    .command('required')
    .description('what is required and what of it is prepared, at one derivation, however long the list')
    .addOption(clusterOption())
    .addOption(new Option('--state <state>', 'only entries in this state').choices(entryStates))
    .option('--blocked', 'only entries that something blocks')
    .option('--node <id>', 'only entries of this node')
    .addOption(jsonOutputOption());
  namedFor(command, 'listFleetCutoverRequiredVolumeHandoffs');
  addConnectionOptions(command).action((options) =>
    guarded(host, options.json === true, async () => {
      const filter = {
        state: options.state ?? null,
        blocked: options.blocked === true,
        nodeId: options.node ?? null,
      };
      const print = options.json === true ? printJson : printTable;
      await withClient(host, options, (client, settings) => print(host, client, clusterOf(settings), filter));
    }),
  );
}

async function printTable(
  host: CommandHost,
  client: AdministratorClient,
  clusterId: string,
  filter: EntryFilter,
): Promise<void> {
  const counts = noEntries();
  let first = true;
  for await (const { derivation, aggregate, entries } of requiredPages(list(client), clusterId)) {
    if (first) {
      const prepared =
        aggregate === null ? 'no aggregate' : `aggregate ${aggregate.id} generation ${aggregate.generation}`;
      host.stdout(`derivation ${derivation.id} generation ${derivation.generation}, ${prepared}\n${tableHeader}\n`);
      first = false;
    }
    for (const entry of entries) countEntry(counts, entry);
    const shown = entries.filter((entry) => isShown(entry, filter));
    counts.shown += shown.length;
    host.stdout(shown.map((entry) => `${entryLine(entry)}\n`).join(''));
  }
  host.stdout(`${countsLine(counts)}\n`);
}

/** One document, written as its pages arrive: the longest list has more than a hundred thousand entries. */
async function printJson(
  host: CommandHost,
  client: AdministratorClient,
  clusterId: string,
  filter: EntryFilter,
): Promise<void> {
  const counts = noEntries();
  let first = true;
  for await (const { derivation, aggregate, entries } of requiredPages(list(client), clusterId)) {
    if (first) {
      const head = jsonText({ clusterId, derivation, aggregate });
      host.stdout(`${head.slice(0, -1)},"entries":[`);
      first = false;
    }
    for (const entry of entries) countEntry(counts, entry);
    const shown = entries.filter((entry) => isShown(entry, filter));
    const separator = counts.shown > 0 && shown.length > 0 ? ',' : '';
    counts.shown += shown.length;
    host.stdout(separator + shown.map((entry) => jsonText(entry)).join(','));
  }
  host.stdout(`],"counts":${JSON.stringify(counts)}}\n`);
}

const list =
  (client: AdministratorClient): AdministratorClient['listFleetCutoverRequiredVolumeHandoffs'] =>
  (request) =>
    client.listFleetCutoverRequiredVolumeHandoffs(request);
