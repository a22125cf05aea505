import { resolve } from 'node:path';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../../client/administrator-client.js';
import { ProblemError } from '../../client/errors.js';
import type { IFleetCutoverBlocker } from '../../contract/derivation.js';
import type { MethodResponse } from '../../contract/methods.js';
import { referenceOf } from '../../contract/schema.js';
import { isAnonymousVolumeName } from '../../contract/mount.js';
import type { IFleetCutoverScope } from '../../contract/scope.js';
import { requiredPages } from '../bulk/required-pages.js';
import { withClient } from '../client-session.js';
import { type CommandHost, guarded } from '../command-host.js';
import { addConnectionOptions, clusterOption, readInput } from '../connection-options.js';
import { everyPage } from '../every-page.js';
import { commandGroup } from '../method-command.js';
import { jsonOutputOption, printResult, UsageError } from '../output.js';
import { referenceText } from '../reference-text.js';
import { scopeGroup } from '../scope-commands.js';
import { clusterOf } from '../settings.js';
import { replaceFile, writeNewFile } from './replace-file.js';
import { answerLists, type IScopeFile } from './scope-file.js';
import { suggest, type Suggestion } from './suggestion.js';
import type { ScopeFileInformation } from './write-scope-file.js';

/** `scope suggest --cluster ID --out FILE [--from FILE]` */
export function registerScopeSuggest(program: CommandUnknownOpts, host: CommandHost): void {
  const command = commandGroup(program, 'scope', scopeGroup)
    .command('suggest')
    .description('write a file that proposes a class for every swarm service; it changes nothing')
    .addOption(clusterOption())
    .requiredOption('--out <file>', 'new file; may be the one of --from')
    .option('--from <file>', 'an earlier file, whose answers are kept')
    .addOption(jsonOutputOption());
  addConnectionOptions(command).action((options) =>
    guarded(host, options.json === true, async () => {
      const { out, from } = options;
      const [{ parseScopeFile }, { scopeFileText }] = await Promise.all([
        import('./parse-scope-file.js'),
        import('./write-scope-file.js'),
      ]);
      const read = from === undefined ? null : await readInput(from);
      const earlier = from === undefined || read === null ? null : parseScopeFile(read, from).file;
      const { suggestion, information } = await withClient(host, options, (client, settings) => {
        const clusterId = clusterOf(settings);
        if (earlier !== null && earlier.clusterId !== clusterId)
          throw new UsageError(`${from ?? ''} is about cluster ${earlier.clusterId}, not ${clusterId}`);
        return gather(host, client, clusterId, earlier);
      });
      const replaces = from !== undefined && resolve(from) === resolve(out);
      const text = scopeFileText(suggestion, information);
      await (replaces && read !== null ? replaceFile(out, read, text) : writeNewFile(out, text));
      const result = summary(out, suggestion);
      printResult(host, result, options.json === true, () => summaryLines(result));
    }),
  );
}

interface Gathered {
  readonly suggestion: Suggestion;
  readonly information: ScopeFileInformation;
}

async function gather(
  host: CommandHost,
  client: AdministratorClient,
  clusterId: string,
  from: IScopeFile | null,
): Promise<Gathered> {
  const state = await client.readFleetCutoverState({ clusterId });
  if (state.managerSnapshot === null) {
    throw new Error('no manager snapshot is accepted yet: a Spark on a manager has to report first');
  }
  const [{ reference, snapshot }, scope, base, owners, blockers] = await Promise.all([
    client.readFleetCutoverManagerSnapshot({ clusterId, snapshot: state.managerSnapshot }),
    state.scope === null ? null : client.readFleetCutoverScope({ clusterId, scope: state.scope }),
    from === null ? null : baseOf(host, client, from),
    liveServices(client, clusterId),
    allBlockers(client, clusterId),
  ]);
  if (!snapshot.complete) throw new Error('the accepted manager snapshot is not complete');
  const suggestion = suggest({
    clusterId,
    runtime: referenceOf(state.runtime),
    inventory: reference,
    services: snapshot.services,
    scope: scope?.scope ?? null,
    blockers,
    owners,
    from,
    base,
  });
  const [volumes, anonymous] = await Promise.all([uncovered(client, clusterId), anonymousVolumes(client, clusterId)]);
  return { suggestion, information: { ...volumes, anonymous } };
}

/** The scope that the file was made for. */
async function baseOf(
  host: CommandHost,
  client: AdministratorClient,
  { clusterId, expectedScope }: IScopeFile,
): Promise<IFleetCutoverScope | null> {
  if (expectedScope === null) return null;
  try {
    return (await client.readFleetCutoverScope({ clusterId, scope: expectedScope })).scope;
  } catch (error) {
    if (!(error instanceof ProblemError) || error.code !== 'pin-unknown') throw error;
    host.stderr(
      `the scope that the file was made for (${referenceText(expectedScope)}) is not known: ` +
        'wherever the file and the current scope differ, you are asked\n',
    );
    return null;
  }
}

async function liveServices(client: AdministratorClient, clusterId: string): Promise<Map<string, string>> {
  const { services } = await everyPage<MethodResponse<'listServices'>, 'services'>({
    items: 'services',
    pageSize: 1000,
    limit: null,
    read: (cursor, limit) => client.listServices({ clusterId, cursor, limit }),
  });
  return new Map(services.filter(({ state }) => state === 'live').map(({ name, serviceId }) => [name, serviceId]));
}

async function allBlockers(client: AdministratorClient, clusterId: string): Promise<IFleetCutoverBlocker[]> {
  const { blockers } = await everyPage<MethodResponse<'listFleetCutoverBlockers'>, 'blockers'>({
    items: 'blockers',
    pageSize: 1024,
    limit: null,
    read: (cursor, limit) => client.listFleetCutoverBlockers({ clusterId, cursor, limit }),
  });
  return blockers;
}

/** For information; a file is read by a person. */
const maximumVolumes = 200;

async function uncovered(client: AdministratorClient, clusterId: string) {
  const volumes: { nodeId: string; volumeName: string; kind: string }[] = [];
  let volumesLeftOut = 0;
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<AdministratorClient['listFleetCutoverUncoveredVolumes']>> =
      await client.listFleetCutoverUncoveredVolumes({ clusterId, cursor, limit: 1024 });
    for (const { nodeId, volumeName, kind } of page.volumes) {
      if (volumes.length < maximumVolumes) volumes.push({ nodeId, volumeName, kind });
      else volumesLeftOut += 1;
    }
    cursor = page.nextCursor;
  } while (cursor !== null);
  return { volumes, volumesLeftOut };
}

async function anonymousVolumes(
  client: AdministratorClient,
  clusterId: string,
): Promise<ScopeFileInformation['anonymous']> {
  const counts = new Map<string, { serviceId: string; name: string; count: number }>();
  const list: AdministratorClient['listFleetCutoverRequiredVolumeHandoffs'] = (request) =>
    client.listFleetCutoverRequiredVolumeHandoffs(request);
  for await (const { entries } of requiredPages(list, clusterId)) {
    for (const { serviceId, serviceName, volumeName, state } of entries) {
      if (state === 'surplus' || volumeName === null || !isAnonymousVolumeName(volumeName)) continue;
      const known = counts.get(serviceId) ?? { serviceId, name: serviceName, count: 0 };
      known.count += 1;
      counts.set(serviceId, known);
    }
  }
  return [...counts.values()];
}

function summary(out: string, { file, sections, unanswerable, dropped, conflicts, again }: Suggestion) {
  const inSection = (name: string) => [...sections.values()].filter((section) => section === name).length;
  const lists = answerLists.flatMap((list) => file[list] as readonly { readonly confirmed: boolean }[]);
  return {
    clusterId: file.clusterId,
    file: out,
    services: file.services.length,
    open: inSection('open'),
    toCheck: inSection('check'),
    plain: inSection('plain'),
    stated: inSection('stated'),
    mountsToConfirm: file.services.flatMap(({ mounts }) => mounts ?? []).filter(({ confirmed }) => !confirmed).length,
    answersToConfirm: lists.filter(({ confirmed }) => !confirmed).length,
    conflicts,
    toConfirmAgain: again,
    unanswerable: unanswerable.length,
    dropped,
  };
}

function summaryLines(result: ReturnType<typeof summary>): string[] {
  return [
    `${result.file}: ${result.services} services: ${result.open} to decide, ${result.toCheck} to check, ${result.plain} plain, ${result.stated} stated already`,
    `${result.mountsToConfirm} mounts and ${result.answersToConfirm} answers to confirm; ${result.unanswerable} blockers that no statement answers`,
    ...(result.conflicts + result.toConfirmAgain === 0
      ? []
      : [
          `the scope has changed since your file was made: ${result.conflicts} conflicts to decide, ${result.toConfirmAgain} of your statements to confirm again`,
        ]),
    ...result.dropped.map((what) => `left out: ${what}`),
    `next: edit it, then \`scope apply ${result.file} --dry-run\``,
  ];
}
