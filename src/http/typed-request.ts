/**
 * `POST /typedrequest`: a method of the table, named in the envelope of `@api.global/typedrequest`. The same
 * authentication, byte limit, operation, audit and replay as at the method's own path.
 *
 * 1. What is no envelope, or can't be read as one, is answered with the problem and its status.
 * 2. Once the method is known, a refusal is an answer with status 200 and `error`: the package's client looks at nothing
 *    else, and throws it as `TypedResponseError` whose `errorData` is the problem document.
 * 3. The token is looked for before anything is parsed, and the named method's byte limit holds for `request` as it is sent.
 */
import { TypeCompiler } from '@sinclair/typebox/compiler';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { sparkSwarmNodeContracts } from '../contract/limits.js';
import type { OwnerMethod } from '../contract/method.js';
import { methods, type TMethodName } from '../contract/methods.js';
import { type Problem, problemCatalogue, refuse, type Refused } from '../contract/problems.js';
import { schemaErrors } from '../contract/record.js';
import { type JsonValue, parseStrictJson, StrictJsonError } from '../contract/strict-json.js';
import { scanTopLevelStrings, topLevelMemberSpan } from '../contract/top-level-scan.js';
import {
  type ITypedRequestEnvelope,
  maximumTypedRequestBytes,
  typedRequestEndpoint,
  TypedRequestEnvelope,
} from '../contract/typed-request.js';
import type { Deps } from '../deps.js';
import { isRefused } from '../refusal.js';
import {
  admitAdministrator,
  answerOwner,
  answerRefusal,
  claimedCredential,
  type Gatekeeping,
  identifyAdministrator,
  noteUndescribedProblem,
  SMALL_BODY_BYTES,
  slowedDown,
} from './bind.js';
import { failureOf } from './failure.js';
import { checkOwnerRequest, type OwnerRequest } from './owner-body.js';
import type { OwnerHandler, OwnerHandlers } from './owner-handlers.js';
import { problemText } from './problem-reply.js';

/** Whatever method it was, it was not begun. */
const notBegun = { mutation: true } as const;

export function bindTypedRequest(
  app: FastifyInstance,
  deps: Deps,
  keeping: Gatekeeping,
  handlers: OwnerHandlers,
): void {
  app.route({
    method: 'POST',
    url: typedRequestEndpoint,
    bodyLimit: maximumTypedRequestBytes,
    config: { caller: 'named-method', mutation: true },
    // Before a large body is read: a token that stands inside of it is not known yet, so it has to stand in the header.
    onRequest: async (request, reply) => {
      const length = Number(request.headers['content-length'] ?? Infinity);
      if (length <= SMALL_BODY_BYTES) return;
      const { authorization } = request.headers;
      const admitted =
        authorization === undefined
          ? TOO_LARGE_WITHOUT_HEADER
          : await identifyAdministrator(deps, request, authorization);
      if (isRefused(admitted)) await answerRefusal(keeping, request, reply, admitted, notBegun);
    },
    handler: async (request, reply) => {
      const bytes = (request.body as Buffer | undefined) ?? Buffer.alloc(0);
      const outcome = await answerEnvelope({ deps, keeping, handlers, request, reply }, bytes);
      if (isRefused(outcome)) return answerRefusal(keeping, request, reply, outcome, notBegun);
      return reply.type('application/json').send(outcome);
    },
  });
}

const TOO_LARGE_WITHOUT_HEADER = refuse('body-too-large', {
  detail: `Without an Authorization header a request has a Content-Length of at most ${SMALL_BODY_BYTES}`,
});

interface Carrying {
  readonly deps: Deps;
  readonly keeping: Gatekeeping;
  readonly handlers: OwnerHandlers;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

/** The answer's text; a refusal where there is no envelope that could be answered. */
async function answerEnvelope(carrying: Carrying, bytes: Buffer): Promise<string | Refused> {
  const head = attempting(() => readHead(bytes));
  if (isRefused(head)) return head;
  const { method: name } = head;
  if (!isMethodName(name)) return failed(head, unknownMethod(name).problem);
  const method: OwnerMethod = methods[name];
  try {
    const outcome = await callMethod(carrying, name, bytes, head);
    if (!isRefused(outcome)) return done(head, outcome);
    return failed(head, withOutcome(method, outcome.problem));
  } catch (error) {
    const { problem, unexpected } = failureOf(error, method);
    if (unexpected) carrying.request.log.error({ err: error }, 'request failed');
    return failed(head, problem);
  }
}

/** As `http/bind.ts` does at the method's own path, with a token that may stand in the body. */
async function callMethod(
  { deps, keeping, handlers, request, reply }: Carrying,
  name: TMethodName,
  bytes: Buffer,
  { request: carried, authInfo }: Head,
): Promise<string | Refused> {
  const refuseIt = (refused: Refused, authorization?: string): Refused => {
    noteUndescribedProblem(request.log, name, refused);
    const { problem, retryAfterSeconds } = slowedDown(keeping, request, refused, claimedCredential(authorization));
    if (retryAfterSeconds !== undefined) void reply.header('retry-after', String(retryAfterSeconds));
    return { kind: 'refused', problem };
  };
  if ((carried?.length ?? 0) > methods[name].maximumRequestBytes) return refuseIt(refuse('body-too-large'));
  const presented = attempting(() => authorizationOf(request.headers.authorization, carried, authInfo));
  if (isRefused(presented)) return refuseIt(presented);
  const { authorization } = presented;
  const admit = () => admitAdministrator(deps, keeping, name, request, authorization);
  const actor = await admit();
  if (isRefused(actor)) return refuseIt(actor, authorization);
  // Each handler gets the request that its own method's schema has let through.
  const handle = handlers[name] as unknown as OwnerHandler<TMethodName>;
  const outcome = await keeping.largeBodies.pass(bytes.length, async (waited) => {
    const still = waited ? await admit() : actor;
    if (isRefused(still)) return still;
    return answerOwner(deps, keeping, name, still, readCarriedRequest(name, bytes), handle);
  });
  return isRefused(outcome) ? refuseIt(outcome, authorization) : outcome;
}

// Reading -----------------------------------------------------------------------------------------------------------

/** What a scan finds, before anything is parsed. */
interface Head {
  readonly method: string;
  readonly correlation: string | undefined;
  /** Bytes of these members. */
  readonly request: Buffer | undefined;
  readonly authInfo: Buffer | undefined;
}

const checker = TypeCompiler.Compile(TypedRequestEnvelope);

const MAXIMUM_METHOD_BYTES = 128;
const MAXIMUM_TOKEN_BYTES = 512;
const MAXIMUM_CORRELATION_BYTES = 128;

/** Throws `StrictJsonError`. */
function readHead(bytes: Buffer): Head | Refused {
  const method = scanTopLevelStrings(bytes, ['method'], { maximumValueBytes: MAXIMUM_METHOD_BYTES }).get('method');
  if (method === undefined) return refuse('body-schema', { errors: ['the envelope names no method'] });
  const correlation = memberOf(bytes, 'correlation');
  const id = isObject(correlation)
    ? scanTopLevelStrings(correlation, ['id'], { maximumValueBytes: MAXIMUM_CORRELATION_BYTES }).get('id')
    : undefined;
  return { method, correlation: id, request: memberOf(bytes, 'request'), authInfo: memberOf(bytes, 'authInfo') };
}

function memberOf(bytes: Buffer, name: string): Buffer | undefined {
  const span = topLevelMemberSpan(bytes, name);
  return span === null ? undefined : bytes.subarray(span.start, span.end);
}

function isObject(bytes: Buffer | undefined): bytes is Buffer {
  return bytes?.[0] === LEFT_BRACE;
}

const LEFT_BRACE = 0x7b;

/**
 * What stands in the header, or would: the package's client lets no header be set where it posts by itself, so the token
 * may travel as `authInfo.jwt`, or as serve.zone has it, `request.identity.jwt`. Several have to be the same one. Throws
 * `StrictJsonError`.
 */
function authorizationOf(
  header: string | undefined,
  request: Buffer | undefined,
  authInfo: Buffer | undefined,
): { readonly authorization: string | undefined } | Refused {
  const identity = isObject(request) ? memberOf(request, 'identity') : undefined;
  const inside = [authInfo, identity].flatMap((member) => {
    if (!isObject(member)) return [];
    const token = scanTopLevelStrings(member, ['jwt'], { maximumValueBytes: MAXIMUM_TOKEN_BYTES }).get('jwt');
    return token === undefined ? [] : [`Bearer ${token}`];
  });
  const all = new Set([...(header === undefined ? [] : [header]), ...inside]);
  if (all.size > 1) return refuse('credential-refused', { detail: 'The request carries different tokens' });
  return { authorization: [...all][0] };
}

function readCarriedRequest(name: TMethodName, bytes: Buffer): OwnerRequest<TMethodName> | Refused {
  const value = attempting(() => ({ kind: 'parsed', json: parseStrictJson(bytes) }) as const);
  if (isRefused(value)) return value;
  const found = schemaErrors('typedrequest', checker, value.json, bytes.byteLength);
  const errors = found.map((error) => error.slice(0, MAXIMUM_ERROR_LENGTH));
  if (errors.length > 0) return refuse('body-schema', { errors });
  const { identity: _, ...own } = (value.json as unknown as ITypedRequestEnvelope).request;
  return checkOwnerRequest(name, bytes, own as JsonValue);
}

const MAXIMUM_ERROR_LENGTH = 256;

/** Its message says what and where, and quotes nothing. */
function attempting<T>(read: () => T): T | Refused {
  try {
    return read();
  } catch (error) {
    if (error instanceof StrictJsonError) return refuse('body-invalid-json', { detail: error.message });
    throw error;
  }
}

function isMethodName(name: string): name is TMethodName {
  return Object.hasOwn(methods, name);
}

function unknownMethod(name: string): Refused {
  const spark = Object.entries(sparkSwarmNodeContracts).some(
    ([key, contract]) => typeof contract !== 'number' && (key === name || contract.endpoint === name),
  );
  if (spark) return refuse('route-unknown', { detail: 'Endpoints of Spark are not carried in an envelope' });
  return refuse('route-unknown', { detail: 'There is no such method' });
}

// Answering ---------------------------------------------------------------------------------------------------------

function withOutcome(method: OwnerMethod, problem: Problem): Problem {
  return method.mutation ? { mutationOutcome: 'not-applied', ...problem } : problem;
}

function done(head: Head, response: string): string {
  return envelope(head, `"response":${response}`);
}

function failed(head: Head, problem: Problem): string {
  const { code, detail } = problem;
  const text = `${code}: ${detail ?? problemCatalogue[code].title}`;
  return envelope(head, `"response":null,"error":{"text":${JSON.stringify(text)},"data":${problemText(problem)}}`);
}

/** The request is not sent back: it may hold a token. */
function envelope({ method, correlation }: Head, outcome: string): string {
  const matching =
    correlation === undefined ? '' : `,"correlation":${JSON.stringify({ id: correlation, phase: 'response' })}`;
  return `{"method":${JSON.stringify(method)},"request":null,${outcome},"localData":null${matching}}`;
}
