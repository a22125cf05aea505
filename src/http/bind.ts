/** Binds the contract's methods and endpoints to their handlers: authentication, bytes, shapes, answers. */
import type { Readable } from 'node:stream';
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest, preParsingHookHandler } from 'fastify';
import { methodPath, type OwnerMethod } from '../contract/method.js';
import { problemsOfMethod, problemsOfSparkEndpoint, type TSparkEndpointName } from '../contract/method-problems.js';
import { sparkSwarmNodeContracts } from '../contract/limits.js';
import { methodNames, methods, type TMethodName } from '../contract/methods.js';
import { type Problem, problemCatalogue, refuse, type Refused, type TProblemCode } from '../contract/problems.js';
import type { Deps } from '../deps.js';
import { RefusalCounter } from '../features/audit/refusal-counter.js';
import type { AdministratorActor, NodeActor } from '../features/auth/actor.js';
import { parseAuthorization } from '../features/auth/credential.js';
import { authenticateAdministrator, authenticateNode } from '../features/auth/facts.js';
import { authenticateSparkBody } from '../features/auth/spark-body.js';
import { isRefused } from '../refusal.js';
import { LARGE_BODY_BYTES, LargeBodyGate } from './large-body-gate.js';
import { LoginThrottle } from './login-throttle.js';
import { type OwnerRequest, readOwnerRequest, writeOwnerResponse } from './owner-body.js';
import type { OwnerHandler, OwnerHandlers } from './owner-handlers.js';
import { sendProblem } from './problem-reply.js';
import { UnprovenBytes } from './unproven-bytes.js';

/** What the routes of one server share. */
export interface Gatekeeping {
  readonly throttle: LoginThrottle;
  readonly largeBodies: LargeBodyGate;
  readonly unproven: UnprovenBytes;
  readonly refusals: RefusalCounter;
}

/** Also writes what is left of the refusal counts when the server closes. */
export function createGatekeeping(app: FastifyInstance, deps: Deps): Gatekeeping {
  const refusals = new RefusalCounter(deps, (error) => app.log.warn({ err: error }, 'refusals could not be counted'));
  app.addHook('onClose', () => refusals.drain());
  return {
    throttle: new LoginThrottle(deps.clock),
    largeBodies: new LargeBodyGate(),
    unproven: new UnprovenBytes(),
    refusals,
  };
}

// Owner methods -----------------------------------------------------------------------------------------------------

/** Routes of the methods that there are handlers for. */
export function bindOwnerMethods<Names extends TMethodName>(
  app: FastifyInstance,
  deps: Deps,
  keeping: Gatekeeping,
  handlers: OwnerHandlers<Names>,
): void {
  for (const name of Object.keys(handlers) as Names[]) {
    // Each handler gets the request that its own method's schema has let through.
    bindOwnerMethod(app, deps, keeping, name, handlers[name] as unknown as OwnerHandler<TMethodName>);
  }
}

function bindOwnerMethod(
  app: FastifyInstance,
  deps: Deps,
  keeping: Gatekeeping,
  name: TMethodName,
  handle: OwnerHandler<TMethodName>,
): void {
  const method: OwnerMethod = methods[name];
  app.route({
    method: 'POST',
    url: methodPath(method),
    bodyLimit: method.maximumRequestBytes,
    config: { caller: method.caller, mutation: method.mutation },
    // Before a large body is read, so that strangers' megabytes are not kept.
    onRequest: async (request, reply) => {
      if (method.maximumRequestBytes <= SMALL_BODY_BYTES) return;
      const admitted = await admitAdministrator(deps, keeping, name, request);
      if (isRefused(admitted)) await answerRefusal(keeping, request, reply, admitted, method);
    },
    handler: async (request, reply) => {
      // Once the body is complete, and before it is parsed: whoever holds its last byte back outruns no revocation.
      const actor = await admitAdministrator(deps, keeping, name, request);
      if (isRefused(actor)) return answerRefusal(keeping, request, reply, actor, method);
      const bytes = request.body as Buffer | undefined;
      const outcome = await keeping.largeBodies.pass(bytes?.length ?? 0, async (waited) => {
        // Nor does whoever waited outrun one that was committed meanwhile.
        const still = waited ? await admitAdministrator(deps, keeping, name, request) : actor;
        if (isRefused(still)) return still;
        return answerOwner(deps, keeping, name, still, readOwnerRequest(name, bytes), handle);
      });
      if (isRefused(outcome)) {
        noteUndescribedProblem(request.log, name, outcome);
        return answerRefusal(keeping, request, reply, outcome, method);
      }
      return reply.type('application/json').send(outcome);
    },
  });
}

const describedProblems = new Map(methodNames.map((name) => [name, new Set(problemsOfMethod(name))] as const));

/** A refusal that the API's description does not tell is answered all the same; the tests fail where one is noted. */
export function noteUndescribedProblem(log: FastifyBaseLogger, name: TMethodName, refused: Refused): void {
  noteUndescribed(log, name, describedProblems.get(name) ?? new Set(), refused);
}

function noteUndescribed(
  log: FastifyBaseLogger,
  route: string,
  described: ReadonlySet<TProblemCode>,
  refused: Refused,
): void {
  const { code } = refused.problem;
  if (!described.has(code)) log.error({ route, code }, 'undescribed problem');
}

/** Bodies up to here are kept for anybody until they are complete: the largest of a mutation of handoffs. */
export const SMALL_BODY_BYTES = 262_144;

/** Who it is, whatever may be called. `authorization` is what stands in that header, or would. */
export async function identifyAdministrator(
  deps: Deps,
  request: FastifyRequest,
  authorization: string | undefined,
): Promise<AdministratorActor | Refused> {
  const actor = await authenticateAdministrator(deps, authorization);
  if (!isRefused(actor)) request.principal = actor.principalId;
  return actor;
}

/** Whoever may call the method. */
export async function admitAdministrator(
  deps: Deps,
  keeping: Gatekeeping,
  name: TMethodName,
  request: FastifyRequest,
  authorization = request.headers.authorization,
): Promise<AdministratorActor | Refused> {
  const actor = await identifyAdministrator(deps, request, authorization);
  if (isRefused(actor)) return actor;
  if (methods[name].caller !== 'administrator' || actor.role === 'administrator') return actor;
  return counted(keeping, actor, name, null, refuse('role-refused'));
}

/** The answer's text, or a refusal. */
export async function answerOwner(
  deps: Deps,
  keeping: Gatekeeping,
  name: TMethodName,
  actor: AdministratorActor,
  body: OwnerRequest<TMethodName> | Refused,
  handle: OwnerHandler<TMethodName>,
): Promise<string | Refused> {
  if (isRefused(body)) return counted(keeping, actor, name, null, body);
  const response = await handle(deps, actor, body.request);
  if (!isRefused(response)) return writeOwnerResponse(name, response);
  const clusterId = 'clusterId' in body.request ? body.request.clusterId : null;
  return counted(keeping, actor, name, clusterId, response);
}

/** Counts a refusal after authentication, unless it is the service that could not. */
function counted(
  keeping: Gatekeeping,
  actor: Pick<AdministratorActor, 'organizationId' | 'principalId'>,
  method: string,
  clusterId: string | null,
  refused: Refused,
): Refused {
  const { code } = refused.problem;
  const { organizationId, principalId } = actor;
  if (problemCatalogue[code].status < 500) {
    keeping.refusals.count({ organizationId, principalId, method, code, clusterId });
  }
  return refused;
}

// Spark endpoints ---------------------------------------------------------------------------------------------------

/** Takes an authenticated body's bytes, gives the answer's JSON: bytes that are sent as they are. */
export type SparkHandler = (actor: NodeActor, bytes: Buffer) => Promise<Buffer | string | Refused>;

/** An answer over the endpoint's limit, which no client would read. */
export class ResponseTooLargeError extends Error {
  override readonly name = 'ResponseTooLargeError';
}

/** Authenticates, and limits bytes in both directions; everything in between is the handler's. */
export function bindSparkEndpoint(
  app: FastifyInstance,
  deps: Deps,
  keeping: Gatekeeping,
  name: TSparkEndpointName,
  handle: SparkHandler,
): void {
  const limits = sparkSwarmNodeContracts[name];
  const described = new Set(problemsOfSparkEndpoint(name));
  app.route({
    method: 'POST',
    url: limits.endpoint,
    bodyLimit: limits.maxRequestBytes,
    config: { caller: 'node' },
    ...(limits.maxRequestBytes <= LARGE_BODY_BYTES ? {} : { preParsing: countUnproven(keeping) }),
    handler: async (request, reply) => {
      const bytes = (request.body as Buffer | undefined) ?? Buffer.alloc(0);
      const claim: ClaimedNode = { nodeId: undefined, actor: undefined };
      const outcome = await answerSpark(deps, keeping, request, bytes, claim, handle);
      if (isRefused(outcome)) {
        noteUndescribed(request.log, name, described, outcome);
        const { actor } = claim;
        if (actor !== undefined) {
          const node = { organizationId: actor.organizationId, principalId: actor.nodeId };
          counted(keeping, node, limits.endpoint, actor.clusterId, outcome);
        }
        return answerRefusal(keeping, request, reply, outcome, limits, claim.nodeId);
      }
      if (Buffer.byteLength(outcome) > limits.maxResponseBytes) {
        throw new ResponseTooLargeError(`the answer has more than ${limits.maxResponseBytes} bytes`);
      }
      return reply.type('application/json').send(outcome);
    },
  });
}

function countUnproven({ unproven }: Gatekeeping): preParsingHookHandler {
  return (request, reply, payload, done) => done(null, unproven.receive(request, reply, payload as Readable));
}

/** The node that a body claims to come from, as soon as it is known. */
interface ClaimedNode {
  nodeId: string | undefined;
  /** While it is authenticated. */
  actor: NodeActor | undefined;
}

/** Only authenticated bodies wait for each other; whoever waited is authenticated once more. */
async function answerSpark(
  deps: Deps,
  keeping: Gatekeeping,
  request: FastifyRequest,
  bytes: Buffer,
  claim: ClaimedNode,
  handle: SparkHandler,
): Promise<Buffer | string | Refused> {
  const actor = await admitNode(deps, request, bytes, claim);
  keeping.unproven.release(request);
  if (isRefused(actor)) return actor;
  return keeping.largeBodies.pass(bytes.length, async (waited) => {
    const still = waited ? await admitNode(deps, request, bytes, claim) : actor;
    return isRefused(still) ? still : handle(still, bytes);
  });
}

/** Whoever the body names, before more of it is parsed than the scan that finds the name. */
function admitNode(
  deps: Deps,
  request: FastifyRequest,
  bytes: Buffer,
  claim: ClaimedNode,
): Promise<NodeActor | Refused> {
  claim.actor = undefined;
  return authenticateSparkBody(bytes, async (nodeId, nodeToken) => {
    claim.nodeId = nodeId;
    const actor = await authenticateNode(deps, nodeId, nodeToken);
    if (isRefused(actor)) return actor;
    request.principal = actor.nodeId;
    claim.actor = actor;
    return actor;
  });
}

// Refusals ----------------------------------------------------------------------------------------------------------

interface Refusing {
  readonly mutation?: boolean;
  readonly maxResponseBytes?: number;
}

/** `id`: the node or credential that was claimed. */
export function answerRefusal(
  keeping: Gatekeeping,
  request: FastifyRequest,
  reply: FastifyReply,
  refused: Refused,
  route: Refusing,
  id = claimedCredential(request.headers.authorization),
): FastifyReply {
  const { problem, retryAfterSeconds } = slowedDown(keeping, request, refused, id);
  const outcome = route.mutation === true ? ({ mutationOutcome: 'not-applied' } as const) : {};
  return sendProblem(reply, { ...outcome, ...problem }, { retryAfterSeconds, maximumBytes: route.maxResponseBytes });
}

/** The id of the credential that a header claims to be. */
export function claimedCredential(authorization: string | undefined): string | undefined {
  return parseAuthorization(authorization ?? '')?.credentialId;
}

/** What is really answered: to who has failed too often, that it has to wait. */
export function slowedDown(
  keeping: Gatekeeping,
  request: FastifyRequest,
  refused: Refused,
  id: string | undefined,
): { readonly problem: Problem; readonly retryAfterSeconds?: number } {
  if (refused.problem.code !== 'credential-refused') return refused;
  const retryAfterSeconds = keeping.throttle.fail(request.ip, id);
  if (retryAfterSeconds === undefined) return refused;
  return { problem: refuse('rate-limited', { retrySafe: true }).problem, retryAfterSeconds };
}
