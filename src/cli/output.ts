/** What the commands print, and the exit codes. Results go to stdout; failures and progress go to stderr. */
import { Option } from '@commander-js/extra-typings';
import { ContractViolationError, ProblemError, TransportError } from '../client/errors.js';
import { ServiceUrlError } from '../client/service-url.js';
import { problemCatalogue, type TProblemCode } from '../contract/problems.js';
import { ContractError } from '../contract/record.js';

export interface CommandStreams {
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
}

/** Where results are printed as lines for people otherwise. */
export const jsonOutputOption = () => new Option('--json', 'print one JSON document');

export const exitCodes = { done: 0, refused: 1, usage: 2, unreachable: 3 } as const;
export type TExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** A command that can't be carried out as it was given. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

interface Failure {
  readonly exitCode: TExitCode;
  readonly kind: 'refused' | 'usage' | 'unreachable' | 'failed';
  readonly message: string;
  /** One line each. */
  readonly details: readonly string[];
  readonly next: string;
  readonly problem?: ProblemError['document'];
}

/** Prints a failure with what to do next, as lines or as one JSON document, and gives the exit code. */
export function printFailure(streams: CommandStreams, error: unknown, asJson: boolean): TExitCode {
  const { exitCode, ...failure } = describeFailure(error);
  if (asJson) {
    streams.stderr(`${JSON.stringify({ error: failure })}\n`);
    return exitCode;
  }
  const lines = [`${failure.kind}: ${failure.message}`, ...failure.details.map((detail) => `  ${detail}`)];
  streams.stderr(`${[...lines, `  next: ${failure.next}`].join('\n')}\n`);
  return exitCode;
}

function describeFailure(error: unknown): Failure {
  if (error instanceof ProblemError) return describeProblem(error);
  if (error instanceof TransportError) return describeTransport(error);
  if (error instanceof ContractViolationError) {
    return {
      exitCode: exitCodes.unreachable,
      kind: 'failed',
      message: error.message,
      details: error.errors.slice(1),
      next: 'check the URL and that the service is of this program’s version; what was asked for may have been applied',
    };
  }
  if (error instanceof UsageError || error instanceof ContractError || error instanceof ServiceUrlError) {
    const details = error instanceof ContractError ? error.errors.slice(1) : [];
    return {
      exitCode: exitCodes.usage,
      kind: 'usage',
      message: error.message,
      details,
      next: 'correct it; nothing was sent',
    };
  }
  const message = error instanceof Error ? error.message : 'failed';
  return { exitCode: exitCodes.refused, kind: 'failed', message, details: [], next: 'see the message' };
}

function describeProblem(error: ProblemError): Failure {
  const { document, retryAfterSeconds } = error;
  const { detail, expectation, current, entries, errors, supported, mutationOutcome } = document;
  const details: string[] = [];
  if (detail !== undefined) details.push(detail);
  if (expectation !== undefined) details.push(`expectation: ${expectation}`);
  if (current !== undefined) details.push(`current: ${current === null ? 'nothing' : JSON.stringify(current)}`);
  for (const entry of entries ?? []) {
    details.push(`${entry.list}[${entry.index}] ${entry.code}${entry.detail === undefined ? '' : ` ${entry.detail}`}`);
  }
  details.push(...(errors ?? []));
  if (supported !== undefined) details.push(`the service speaks ${supported.major}.${supported.minor}`);
  if (mutationOutcome !== undefined) details.push(`outcome: ${mutationOutcome}`);
  const unknown = mutationOutcome === 'unknown';
  return {
    exitCode: unknown || error.status >= 500 ? exitCodes.unreachable : exitCodes.refused,
    kind: 'refused',
    message: `${error.code} (${error.status}) ${document.title}`,
    details,
    next: unknown ? repeatSame : adviceOn(error, retryAfterSeconds),
    problem: document,
  };
}

const repeatSame = 'repeat the same command with the same mutation id; the answer then tells what became of it';

function adviceOn({ code, status }: ProblemError, retryAfterSeconds: number | null): string {
  const particular = advice[code as TProblemCode];
  if (particular !== undefined) return particular;
  if (retryAfterSeconds !== null) return `wait ${retryAfterSeconds} s, then repeat the same command`;
  if (status >= 500 || status === 429) return 'repeat the same command later';
  if (status === 409) return 'read the current reference, decide again, and name it as what you expect';
  const acts = Object.hasOwn(problemCatalogue, code) ? problemCatalogue[code as TProblemCode].acts : 'caller';
  return acts === 'caller' ? 'correct the request' : `the ${acts} has to act first`;
}

const advice: Partial<Record<TProblemCode, string>> = {
  'credential-missing': 'put a token into FLEET_CUTOVER_TOKEN or name its file with --token-file',
  'credential-refused':
    'use the newest token; a lost one is rotated, and on the host `fleet-cutover host bootstrap` makes one',
  'role-refused': 'use the token of an administrator',
  'cluster-unknown': 'list the clusters of this token’s organization with `call listClusters`',
  'mutation-id-reused': 'use a new mutation id for a new intent, or the first request exactly for a repeat',
  'node-quarantined': 'find out which two reporters are live, then `call releaseNodeQuarantine`',
  'reporter-replaced': 'two processes report for this node: end one of them, then `call releaseNodeQuarantine`',
  'protocol-unsupported': 'run the version of this program that speaks the service’s protocol',
  'record-corrupt': 'call the operator: a stored record was changed behind the service',
};

function describeTransport(error: TransportError): Failure {
  const lost = error.outcome === 'unknown';
  return {
    exitCode: exitCodes.unreachable,
    kind: 'unreachable',
    message: error.message,
    details: error.cause instanceof ProblemError ? [`the last answer was ${error.cause.message}`] : [],
    next: lost ? repeatSame : 'check the URL and that the service runs, then repeat the same command',
  };
}

/** Prints a result: one JSON document, or the given lines for people. */
export function printResult(streams: CommandStreams, result: unknown, asJson: boolean, lines: () => string[]): void {
  streams.stdout(asJson ? `${JSON.stringify(result)}\n` : `${lines().join('\n')}\n`);
}
