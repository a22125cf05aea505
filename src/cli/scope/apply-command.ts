import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../../client/administrator-client.js';
import { ProblemError } from '../../client/errors.js';
import type { MethodResponse } from '../../contract/methods.js';
import { withClient } from '../client-session.js';
import { type CommandHost, guarded } from '../command-host.js';
import { addConnectionOptions, readInput } from '../connection-options.js';
import { commandGroup, namedFor } from '../method-command.js';
import { mutationIdOf, mutationIdOption } from '../mutation-request.js';
import { jsonOutputOption, printLine, printResult } from '../output.js';
import { scopeGroup } from '../scope-commands.js';
import type { ParsedScopeFile } from './parse-scope-file.js';
import { changeLines, type ScopeChange, scopeChanges } from './scope-diff.js';
import { ScopeFileRefused } from './scope-file-refused.js';
import { openStatements, statementOf, unknownServices } from './scope-request.js';

/** `scope apply FILE [--dry-run]` */
export function registerScopeApply(program: CommandUnknownOpts, host: CommandHost): void {
  const command = commandGroup(program, 'scope', scopeGroup)
    .command('apply')
    .description('classify the scope as a confirmed file states it, with what it changes')
    .argument('<file>', 'a file of `scope suggest`, edited and confirmed')
    .option('--dry-run', 'check everything, change nothing')
    .addOption(mutationIdOption())
    .addOption(jsonOutputOption());
  namedFor(command, 'classifyFleetCutoverScope');
  addConnectionOptions(command).action((path, options) =>
    guarded(host, options.json === true, async () => {
      const asJson = options.json === true;
      const { parseScopeFile } = await import('./parse-scope-file.js');
      const parsed = parseScopeFile(await readInput(path), path);
      const open = openStatements(parsed);
      if (open.length > 0) throw new ScopeFileRefused(path, open);
      const dryRun = options.dryRun === true;
      await withClient(host, options, async (client) => {
        const stale = (error: unknown) => adviseOnStale(host, error, parsed, path);
        const changes = await compare(client, parsed, path).catch(stale);
        await warnOfPhase(host, client, parsed.file.clusterId, dryRun);
        if (!asJson) printResult(host, changes, false, () => changeLines(changes));
        const mutationId = mutationIdOf(host, options.mutationId);
        const answer = await client
          .classifyFleetCutoverScope({ mutationId, ...(dryRun ? { dryRun } : {}), ...requestOf(parsed) })
          .catch(stale);
        printResult(host, { ...answer, changes }, asJson, () => answerLines(answer, parsed, path));
      });
    }),
  );
}

/** Nothing but the file says what is sent, so that a repeat under the same mutation id is the same request. */
function requestOf(parsed: ParsedScopeFile) {
  const { clusterId, runtime, inventory, expectedScope } = parsed.file;
  return { clusterId, runtime, inventory, expectedScope, statement: statementOf(parsed) };
}

/** What the file changes of the scope that it expects. Throws {@link ScopeFileRefused} for services that nobody knows. */
async function compare(client: AdministratorClient, parsed: ParsedScopeFile, path: string): Promise<ScopeChange[]> {
  const { clusterId, inventory, expectedScope } = parsed.file;
  const [{ snapshot }, before] = await Promise.all([
    client.readFleetCutoverManagerSnapshot({ clusterId, snapshot: inventory }),
    expectedScope === null ? null : client.readFleetCutoverScope({ clusterId, scope: expectedScope }),
  ]);
  const services = snapshot.complete ? snapshot.services : [];
  const names = new Map(services.map(({ id, name }) => [id, name]));
  const scope = new Set(before?.scope.services.map(({ swarmServiceId }) => swarmServiceId));
  const unknown = unknownServices(parsed, { inventory: names, scope });
  if (unknown.length > 0) throw new ScopeFileRefused(path, unknown);
  return scopeChanges(before?.scope ?? null, statementOf(parsed), (id) => names.get(id) ?? id);
}

async function warnOfPhase(host: CommandHost, client: AdministratorClient, clusterId: string, dryRun: boolean) {
  const { phase } = (await client.readFleetCutoverState({ clusterId })).runtime;
  if (phase !== 'draining' && phase !== 'switching') return;
  printLine(
    host,
    `${phase}: a new scope leaves the prepared set behind; its next revision starts coverage again` +
      (dryRun ? '' : ', and every node reports every page once more'),
  );
}

const staleCodes: ReadonlySet<string> = new Set([
  'inventory-stale',
  'scope-stale',
  'runtime-stale',
  'pin-unknown',
  'record-unknown',
]);

/** Says what the error is about in the file, and throws it. */
function adviseOnStale(host: CommandHost, error: unknown, { file, lineOf }: ParsedScopeFile, path: string): never {
  if (error instanceof ProblemError) {
    for (const { list, index, code, detail } of error.entries) {
      printLine(host, `${path}:${lineOf(`/${list}/${index}`)}: ${code}${detail === undefined ? '' : ` ${detail}`}`);
    }
    if (staleCodes.has(error.code)) {
      printLine(
        host,
        `${path} was made for another inventory, scope or phase. Renew it: it keeps your answers and adds what is new:`,
      );
      printLine(host, `  fleet-cutover scope suggest --cluster ${file.clusterId} --from ${path} --out ${path}`);
    }
  }
  throw error;
}

function answerLines(
  answer: MethodResponse<'classifyFleetCutoverScope'>,
  { file }: ParsedScopeFile,
  path: string,
): string[] {
  const { scope, state, unclassified, requiredCount, blockers, dryRun, replayed, current } = answer;
  const renew = `scope suggest --cluster ${file.clusterId} --from ${path} --out ${path}`;
  return [
    ...(replayed ? [`replay: done before${current ? '' : ', and no longer the latest'}`] : []),
    dryRun ? 'dry run: nothing was changed' : `scope ${scope.id} generation ${scope.generation} ${scope.digest}`,
    `${state}; ${requiredCount} volumes are required`,
    `unclassified: ${unclassified.length === 0 ? 'none' : unclassified.join(', ')}`,
    `blockers: ${blockers.length === 0 ? 'none' : blockers.map(({ code, count }) => `${count} ${code}`).join(', ')}`,
    ...(blockers.length === 0 || dryRun ? [] : [`next: \`${renew}\` offers the answers to what blocks`]),
  ];
}
