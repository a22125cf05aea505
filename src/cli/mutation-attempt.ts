/**
 * One attempt of a mutation from the command line, or its repeat.
 *
 *  1. A first attempt reads what it expects, says it, and saves the whole request before it is sent.
 *  2. A repeat, that is one with the id of a saved request, sends exactly that: what has moved since doesn't matter.
 *  3. What was refused by a comparison or a rule was not applied: the saved request is dropped, so that the same command
 *     decides anew. Every other failure leaves it, since nothing is known about the first attempt.
 *
 * A dry run saves nothing and repeats nothing.
 */
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import { methodRecords } from '../client/method-records.js';
import { canonicalizeStrictJson } from '../contract/canonical-json.js';
import type { TMethodName } from '../contract/methods.js';
import type { JsonObject, JsonValue } from '../contract/strict-json.js';
import type { CommandHost } from './command-host.js';
import { demandPins, expectationName, expectationsOf, type Pins, readExpectations } from './expectations.js';
import { demandMutationId, mutationIdOf } from './mutation-request.js';
import { UsageError } from './output.js';
import { referenceArgument } from './reference-text.js';
import { codeOf, forgetRequest, readSavedRequest, savedRequestPath, saveRequest } from './saved-request.js';

interface Attempt<T> {
  readonly method: TMethodName;
  readonly client: AdministratorClient;
  readonly clusterId: string;
  readonly dryRun: boolean;
  /** Of an earlier attempt, or chosen by the caller. */
  readonly mutationId: string | undefined;
  readonly pins: Pins;
  /** What the command line says, without how it reaches the service. */
  readonly intent: JsonObject;
  /** The request without mutation id and expectations. */
  readonly given: () => Promise<JsonObject>;
  readonly send: (request: JsonObject) => Promise<T>;
}

export async function attemptMutation<T>(host: CommandHost, attempt: Attempt<T>): Promise<T> {
  const { method, dryRun, mutationId } = attempt;
  if (mutationId !== undefined) demandMutationId(mutationId);
  if (dryRun) return await attempt.send({ ...(await firstRequest(host, attempt)), dryRun });
  const repeated = mutationId === undefined ? null : await savedRequest(host, attempt, mutationId);
  const request = repeated ?? (await firstRequest(host, attempt));
  const path = savedRequestPath(host.environment, method, String(request['mutationId']));
  if (repeated === null) await save(host, method, path, { intent: attempt.intent, request });
  try {
    return await attempt.send(request);
  } catch (error) {
    if (path !== null && isDecided(error)) await forgetRequest(path);
    throw error;
  }
}

async function firstRequest(host: CommandHost, attempt: Attempt<unknown>): Promise<JsonObject> {
  const { client, method, clusterId, pins } = attempt;
  const given = await attempt.given();
  const expectations = await readExpectations({ client, method, clusterId, given, pins });
  const mutationId = mutationIdOf(host, attempt.mutationId);
  const request = { ...given, ...expectations, mutationId } as JsonObject;
  methodRecords(method).request.snapshot(request);
  for (const key of expectationsOf(method).filter((each) => Object.hasOwn(expectations, each)))
    host.stderr(`expects ${expectationName(key)}=${referenceArgument(expectations[key] ?? null)}\n`);
  return request;
}

/** Null where nothing is saved under the id. Throws UsageError where it was saved for another command. */
async function savedRequest(
  host: CommandHost,
  { method, intent, pins }: Attempt<unknown>,
  mutationId: string,
): Promise<JsonObject | null> {
  const path = savedRequestPath(host.environment, method, mutationId);
  const saved = path === null ? null : await readSavedRequest(path);
  if (saved === null || path === null) return null;
  const differing = Object.keys(intent).filter((key) => !sameJson(intent[key], saved.intent[key]));
  if (differing.length > 0 || saved.request['mutationId'] !== mutationId)
    throw new UsageError(
      `the mutation id belongs to an earlier command with another ${differing.join(' and ') || 'request'} (${path})`,
    );
  demandPins(method, saved.request, pins);
  host.stderr('repeats the earlier attempt as it was sent\n');
  return saved.request;
}

const sameJson = (left: JsonValue | undefined, right: JsonValue | undefined) =>
  canonicalizeStrictJson(left ?? null) === canonicalizeStrictJson(right ?? null);

/** Without a saved request a repeat is refused unless it pins what the first attempt expected: safe, so it is only said. */
async function save(
  host: CommandHost,
  method: TMethodName,
  path: string | null,
  saved: Parameters<typeof saveRequest>[1],
): Promise<void> {
  const unsaved = (why: string) => {
    if (expectationsOf(method).length > 0)
      host.stderr(`the request is not saved (${why}): a repeat has to pin what is expected with --expect\n`);
  };
  if (path === null) return unsaved('set FLEET_CUTOVER_STATE_DIR');
  try {
    if (await saveRequest(path, saved)) return;
  } catch (error) {
    return unsaved(codeOf(error));
  }
  throw new UsageError('another process has just used this mutation id: repeat the command to see what became of it');
}

/** A later check than the look-up of replays refused it, so that the id has no recorded result. */
function isDecided(error: unknown): boolean {
  return error instanceof ProblemError && [409, 422].includes(error.status) && error.code !== 'mutation-id-reused';
}
