/** What the commands print, and the exit codes. Results go to stdout; failures and progress go to stderr. */
import { Option } from '@commander-js/extra-typings';
import { ContractViolationError, ProblemError, TransportError } from '../client/errors.js';
import { ServiceUrlError } from '../client/service-url.js';
import { problemCatalogue, type Refused, type TProblemCode } from '../contract/problems.js';
import { ContractError } from '../contract/record.js';
import { advice } from './advice.js';
import { jsonText, printable } from './terminal-text.js';

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
  /** One line each. */
  readonly details: readonly string[];
  constructor(message: string, details: readonly string[] = []) {
    super(message);
    this.details = details;
  }
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

/**
 * Prints a failure with what to do next, as lines or as one JSON document, and gives the exit code. `goOn` is for a command
 * that is not repeated under a mutation id: what to do where an outcome is open.
 */
export function printFailure(streams: CommandStreams, error: unknown, asJson: boolean, goOn?: string): TExitCode {
  const { exitCode, ...described } = describeFailure(error);
  const failure = goOn !== undefined && isOpen(error) ? { ...described, next: goOn } : described;
  if (asJson) {
    streams.stderr(`${jsonText({ error: failure })}\n`);
    return exitCode;
  }
  const lines = [`${failure.kind}: ${failure.message}`, ...failure.details.map((detail) => `  ${detail}`)];
  streams.stderr(textOf([...lines, `  next: ${failure.next}`]));
  return exitCode;
}

/** The refusals and failures after which the same mutation id tells what became of it. */
function isOpen(error: unknown): boolean {
  if (error instanceof TransportError) return error.outcome === 'unknown';
  if (!(error instanceof ProblemError)) return false;
  return (
    error.document.mutationOutcome === 'unknown' || (error.retryAfterSeconds === null && openCodes.has(error.code))
  );
}

const openCodes: ReadonlySet<string> = new Set<TProblemCode>([
  'request-timeout',
  'internal',
  'outcome-unknown',
  'unavailable',
]);

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
    return {
      exitCode: exitCodes.usage,
      kind: 'usage',
      message: error.message,
      details: usageDetails(error),
      next: 'correct it; nothing was sent',
    };
  }
  const message = error instanceof Error ? error.message : 'failed';
  return { exitCode: exitCodes.refused, kind: 'failed', message, details: [], next: 'see the message' };
}

function usageDetails(error: UsageError | ContractError | ServiceUrlError): readonly string[] {
  if (error instanceof UsageError) return error.details;
  return error instanceof ContractError ? error.errors.slice(1) : [];
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
  if (retryAfterSeconds !== null) return `wait ${retryAfterSeconds} s, then repeat the same command`;
  if (Object.hasOwn(advice, code)) return advice[code as TProblemCode];
  // A code of a newer service.
  if (status >= 500 || status === 429) return 'repeat the same command later';
  return status === 409 ? 'read what is current, decide again, and run the command again' : 'correct the request';
}

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
  streams.stdout(asJson ? `${jsonText(result)}\n` : textOf(lines()));
}

/** Prints one line beside the results, to stderr. */
export function printLine(streams: CommandStreams, line: string): void {
  streams.stderr(textOf([line]));
}

/** Why an operation on this machine's database was refused; `what` begins the sentence. */
export function refusalText(what: string, { problem: { code, detail } }: Refused): string {
  return `${what} (${code}): ${detail ?? problemCatalogue[code].title}`;
}

/** Each on its own line: what a name or a reason has in it can't begin another. */
function textOf(lines: readonly string[]): string {
  return `${lines.map(printable).join('\n')}\n`;
}
