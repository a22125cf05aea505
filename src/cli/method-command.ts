/**
 * Commands of owner methods. A command says its words, how its arguments become a request, and how the answer reads; the
 * rest is the same for all of them and stands here once: connection, cluster, expectations, repeats, pages, JSON.
 *
 * With `--json` a command prints the method's own answer; a list prints it with the items of all pages and `nextCursor`
 * null, or where the list goes on after `--limit` items.
 */
import { type Command, type CommandUnknownOpts, Option, type OptionValues } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import { type MethodRequest, type MethodResponse, methods, type TMethodName } from '../contract/methods.js';
import type { JsonObject } from '../contract/strict-json.js';
import { withClient } from './client-session.js';
import { type CommandHost, guarded } from './command-host.js';
import { addConnectionOptions, clusterOption } from './connection-options.js';
import { everyPage, parseLimit } from './every-page.js';
import { type ExpectationKey, expectationsOf, expectOption, type Pins } from './expectations.js';
import { isIssuing, issuing, secretsFileOption, warnOfReplay } from './issuing-method.js';
import { mutationIdOption } from './mutation-request.js';
import { attemptMutation } from './mutation-attempt.js';
import { jsonOutputOption, printResult, UsageError } from './output.js';
import { clusterOf, type ConnectionOptions, type Settings } from './settings.js';
import { type Column, table } from './terminal-text.js';

const answered = new WeakMap<CommandUnknownOpts, TMethodName>();

/** Says which method a command is for; a test demands one for every method. */
export function namedFor(command: CommandUnknownOpts, method: TMethodName): void {
  answered.set(command, method);
}

export function methodOf(command: CommandUnknownOpts): TMethodName | undefined {
  return answered.get(command);
}

/** The command that others of one noun stand under, made when the first of them is. */
export function commandGroup(program: CommandUnknownOpts, name: string, description: string): CommandUnknownOpts {
  const known = program.commands.find((command) => command.name() === name);
  return known ?? (program.command(name).description(description) as unknown as CommandUnknownOpts);
}

/** What a request is made of. */
interface Input<A, O> {
  readonly args: A;
  readonly options: O;
  readonly client: AdministratorClient;
  /** The cluster that is meant; only for methods of one. */
  readonly clusterId: string;
}

/** What every command adds to a request by itself. */
type Filled = 'mutationId' | 'dryRun' | 'clusterId' | 'cursor' | 'limit' | ExpectationKey;
type Given<N extends TMethodName> = Omit<MethodRequest<N>, Filled> & Partial<MethodRequest<N>>;
type MakeRequest<N extends TMethodName, A, O> = (input: Input<A, O>) => Given<N> | Promise<Given<N>>;

interface CommonOptions extends ConnectionOptions {
  readonly json?: true;
  readonly limit?: number;
  readonly dryRun?: true;
  readonly mutationId?: string;
  readonly secretsFile?: string;
  readonly expect?: Pins;
}

/** Options that don't change what a mutation is about. */
const besideIntent = new Set([
  'config',
  'url',
  'tokenFile',
  'caFile',
  'allowPlainHttp',
  'cluster',
  'json',
  'dryRun',
  'mutationId',
  'secretsFile',
  'expect',
]);

interface Invocation<A, O> {
  readonly args: A;
  readonly options: O & CommonOptions;
  readonly client: AdministratorClient;
  readonly settings: Settings;
}

const hasMember = (method: TMethodName, key: string) => Object.hasOwn(methods[method].request.properties, key);

/** `cluster: false` for a method whose cluster is an argument, or none at all where it may be. */
interface Common {
  readonly cluster?: false;
}

/** Adds what all commands have, and the action that runs `work` and prints what it answers. */
function define<A extends unknown[], O extends OptionValues, T>(
  host: CommandHost,
  command: Command<A, O>,
  method: TMethodName,
  { cluster }: Common,
  work: (invocation: Invocation<A, O>) => Promise<T>,
  lines: (answer: T, options: O & CommonOptions) => string[],
): void {
  const whole = addConnectionOptions(command).addOption(jsonOutputOption()) as unknown as CommandUnknownOpts;
  if (cluster !== false && hasMember(method, 'clusterId')) whole.addOption(clusterOption());
  namedFor(whole, method);
  whole.action(() => {
    const options = whole.opts() as O & CommonOptions;
    const args = whole.processedArgs as A;
    return guarded(host, options.json === true, async () => {
      const answer = await withClient(host, options, (client, settings) => work({ args, options, client, settings }));
      printResult(host, answer, options.json === true, () => lines(answer, options));
    });
  });
}

const clusterFor = (method: TMethodName, { cluster }: Common, settings: Settings): string =>
  cluster !== false && hasMember(method, 'clusterId') ? clusterOf(settings) : '';

/** What `request` says, and the cluster where the method is about one. */
async function requestOf<N extends TMethodName, A, O>(
  method: N,
  common: Common & { readonly request: MakeRequest<N, A, O> },
  { args, options, client, settings }: Invocation<A, O>,
): Promise<JsonObject> {
  const clusterId = clusterFor(method, common, settings);
  const given = await common.request({ args, options, client, clusterId });
  return { ...(clusterId === '' ? {} : { clusterId }), ...(given as JsonObject) };
}

interface Query<N extends TMethodName, A, O> extends Common {
  readonly request: MakeRequest<N, A, O>;
  readonly lines: (answer: MethodResponse<N>, options: O) => string[];
}

/** A command that reads one answer. */
export function query<A extends unknown[], O extends OptionValues, N extends TMethodName>(
  host: CommandHost,
  command: Command<A, O>,
  method: N,
  spec: Query<N, A, O>,
): void {
  const work = async (invocation: Invocation<A, O>) =>
    invocation.client.call(method, (await requestOf(method, spec, invocation)) as MethodRequest<N>);
  define(host, command, method, spec, work, spec.lines);
}

interface Report<A, O, T> extends Common {
  readonly read: (input: Input<A, O>) => Promise<T>;
  readonly lines: (answer: T) => string[];
}

/** A command that puts the answers of several methods together; it is named for the first. */
export function report<A extends unknown[], O extends OptionValues, T>(
  host: CommandHost,
  command: Command<A, O>,
  method: TMethodName,
  spec: Report<A, O, T>,
): void {
  const work = ({ settings, ...invocation }: Invocation<A, O>) =>
    spec.read({ ...invocation, clusterId: clusterFor(method, spec, settings) });
  define(host, command, method, spec, work, spec.lines);
}

type Items<R> = { [K in keyof R]: R[K] extends readonly unknown[] ? K : never }[keyof R] & string;
type ItemOf<R, K extends keyof R> = R[K] extends readonly (infer T)[] ? T : never;

interface List<N extends TMethodName, K extends Items<MethodResponse<N>>, A, O> extends Common {
  readonly items: K;
  readonly request?: MakeRequest<N, A, O>;
  readonly columns: readonly Column<ItemOf<MethodResponse<N>, K>>[];
}

/** A command that reads all pages of a list and shows them as one table. */
export function list<
  A extends unknown[],
  O extends OptionValues,
  N extends TMethodName,
  K extends Items<MethodResponse<N>>,
>(host: CommandHost, command: Command<A, O>, method: N, spec: List<N, K, A, O>): void {
  type Paged = MethodResponse<N> & { readonly nextCursor: string | null };
  command.addOption(new Option('--limit <n>', 'show no more than this (default: all)').argParser(parseLimit));
  const { maximum } = (methods[method].request.properties as { limit?: { maximum?: number } }).limit ?? {};
  const given = { ...spec, request: spec.request ?? (() => ({}) as Given<N>) };
  const work = async (invocation: Invocation<A, O>) => {
    const request = await requestOf(method, given, invocation);
    return await everyPage<Paged, K & keyof Paged>({
      items: spec.items,
      pageSize: maximum ?? 1,
      limit: invocation.options.limit ?? null,
      read: (cursor, limit) =>
        invocation.client.call(method, { ...request, cursor, limit } as unknown as MethodRequest<N>) as Promise<Paged>,
    });
  };
  define(host, command, method, spec, work, (answer) => {
    const items = answer[spec.items] as ItemOf<MethodResponse<N>, K>[];
    return [
      ...table(items, spec.columns, `no ${spec.items}`),
      ...(answer.nextCursor === null ? [] : [`… there are more than these ${items.length}`]),
    ];
  });
}

type MutationName = { [N in TMethodName]: MethodRequest<N> extends { mutationId: string } ? N : never }[TMethodName];

interface Mutation<N extends MutationName, A, O> extends Common {
  /** Without expectations, which are read, unless it states one. Not asked where a saved request is repeated. */
  readonly request: MakeRequest<N, A, O>;
  readonly lines: (answer: MethodResponse<N>, options: O & { readonly secretsFile?: string }) => string[];
  /** Said before anything is sent, but not of a dry run. */
  readonly warning?: (options: O) => string;
  /** Printed before a failure. */
  readonly failed?: (error: unknown) => string[];
}

/** A command that changes something. */
export function mutation<A extends unknown[], O extends OptionValues, N extends MutationName>(
  host: CommandHost,
  command: Command<A, O>,
  method: N,
  spec: Mutation<N, A, O>,
): void {
  const tokens = isIssuing(method);
  const expectations = expectationsOf(method);
  command.option('--dry-run', 'answer the same, change nothing').addOption(mutationIdOption());
  if (expectations.length > 0) command.addOption(expectOption(expectations));
  if (tokens) command.addOption(secretsFileOption().makeOptionMandatory());
  const work = async (invocation: Invocation<A, O>) => {
    const { args, options, client, settings } = invocation;
    const { json, dryRun, secretsFile } = options;
    if (spec.warning !== undefined && json !== true && dryRun !== true) host.stderr(`${spec.warning(options)}\n`);
    const clusterId = clusterFor(method, spec, settings);
    const intent = { command: pathOf(command), arguments: args, options: intended(options), clusterId };
    try {
      const answer = await attemptMutation(host, {
        method,
        client,
        clusterId,
        dryRun: dryRun === true,
        mutationId: options.mutationId,
        pins: options.expect ?? {},
        intent: JSON.parse(JSON.stringify(intent)) as JsonObject,
        given: () => requestOf(method, spec, invocation),
        send: (request) => callMethod(client, method, request as MethodRequest<N>, secretsFile),
      });
      if (tokens) warnOfReplay(host, answer as { readonly replayed: boolean });
      return answer;
    } catch (error) {
      const lines = json === true ? [] : (spec.failed?.(error) ?? []);
      if (lines.length > 0) printResult(host, null, false, () => lines);
      throw error;
    }
  };
  define(host, command, method, spec, work, (answer, options) => mutationLines(spec, answer, options));
}

function mutationLines<N extends MutationName, A, O>(
  spec: Mutation<N, A, O>,
  answer: MethodResponse<N>,
  options: O & CommonOptions,
): string[] {
  const { dryRun, replayed, current } = answer as { dryRun: boolean; replayed: boolean; current: boolean };
  return [
    ...spec.lines(answer, options as O & { readonly secretsFile?: string }),
    ...(replayed ? [`replay: done before${current ? '' : ', and no longer the latest'}`] : []),
    ...(dryRun ? ['dry run: nothing was changed'] : []),
  ];
}

async function callMethod<N extends MutationName>(
  client: AdministratorClient,
  method: N,
  request: MethodRequest<N>,
  secretsFile: string | undefined,
): Promise<MethodResponse<N>> {
  if (!isIssuing(method)) return await client.call(method, request);
  if (secretsFile === undefined) throw new UsageError(`${method} issues tokens: give --secrets-file`);
  return (await issuing(client, method, request as never, secretsFile)) as unknown as MethodResponse<N>;
}

function pathOf(command: CommandUnknownOpts): string {
  const parent = command.parent;
  return parent?.parent ? `${pathOf(parent)} ${command.name()}` : command.name();
}

function intended(options: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(options).filter(([name]) => !besideIntent.has(name)));
}
