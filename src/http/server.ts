/** The bare server: what holds for every route, whatever it does. */
import type { Socket } from 'node:net';
import {
  fastify,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import type { TMethodCaller } from '../contract/method.js';
import { type Problem, problemCatalogue } from '../contract/problems.js';
import { failureOf } from './failure.js';
import { problemText, sendProblem } from './problem-reply.js';
import { type Logger, logRequests } from './request-log.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** Who was authenticated, for the log: a principal's or a node's id. */
    principal: string | null;
  }
  interface FastifyInstance {
    /** Everything that the server answers to, in the order in which it was bound. */
    readonly boundRoutes: readonly BoundRoute[];
    /** Whom a plugin's own routes are for, inside the scope that sets it. */
    callerOfScope: TRouteCaller | null;
  }
  interface FastifyContextConfig {
    /** Who may use the route. Without it the route is not accepted. */
    caller?: TRouteCaller;
    /** The route may change something: a failure has to say what became of it. */
    mutation?: boolean;
  }
}

/**
 * Whom a route is for. `public`: anybody, without a credential. `node`: who has the token in the body. `named-method`:
 * whoever the method that the body names is for.
 */
export type TRouteCaller = TMethodCaller | 'node' | 'named-method' | 'public';

export interface BoundRoute {
  readonly method: string;
  readonly path: string;
  readonly caller: TRouteCaller;
}

export interface ServerOptions {
  readonly logger: Logger;
  /** Addresses and ranges of proxies whose `X-Forwarded-For` tells the client's address. */
  readonly trustedProxies?: readonly string[];
  /** Within it a request must have arrived completely, in milliseconds. */
  readonly requestTimeoutMs?: number;
  /** A connection on which nothing moves for this long is closed, in milliseconds. */
  readonly idleTimeoutMs?: number;
}

/** 4 MiB, the largest body of an agent, in this time are 0.6 Mbit/s. */
const REQUEST_TIMEOUT_MS = 60_000;
const IDLE_TIMEOUT_MS = 90_000;

/** Longer than the idle time of common proxies, so that they, not we, end unused connections. */
const KEEP_ALIVE_MS = 72_000;

/** For routes that name no limit of their own: none of them takes a body. */
const DEFAULT_BODY_LIMIT = 1_024;

export function createServer(options: ServerOptions): FastifyInstance {
  const requestTimeout = options.requestTimeoutMs ?? REQUEST_TIMEOUT_MS;
  const trusted = options.trustedProxies ?? [];
  const app = fastify({
    loggerInstance: options.logger,
    // Its lines would show URLs; ours are in request-log.ts.
    logController: new LogController({ disableRequestLogging: true }),
    // A logger of its own says to which request a line belongs: of use only where each request has one.
    childLoggerFactory: (logger, bindings, childOptions) =>
      options.logger.isLevelEnabled('info') ? logger.child(bindings, childOptions) : logger,
    bodyLimit: DEFAULT_BODY_LIMIT,
    requestTimeout,
    connectionTimeout: options.idleTimeoutMs ?? IDLE_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    http: { connectionsCheckingInterval: Math.min(requestTimeout, 5_000), headersTimeout: requestTimeout },
    trustProxy: trusted.length > 0 && [...trusted],
    // Requests that come on open connections while the shutdown is under way are answered, and then the connection ends.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (_error, _request, reply) => {
      void sendProblem(reply, { code: 'route-unknown' });
    },
  }) as unknown as FastifyInstance;
  app.decorateRequest('principal', null);
  demandCallers(app);
  takeJsonOnly(app);
  refuseUnknownRoutes(app);
  app.setErrorHandler(answerFailure);
  endConnectionsOnClose(app);
  logRequests(app, options.logger);
  return app;
}

/** A route that doesn't say whom it is for keeps the server from being made: nothing is open by accident. */
function demandCallers(app: FastifyInstance): void {
  const routes: BoundRoute[] = [];
  app.decorate('boundRoutes', routes);
  app.decorate('callerOfScope', null);
  app.addHook('onRoute', function (this: FastifyInstance, { method, url, config }) {
    const caller = config?.caller ?? this.callerOfScope;
    if (caller === null) throw new Error(`the route ${url} does not say who may call it`);
    for (const each of [method].flat()) routes.push({ method: each, path: url, caller });
  });
}

/**
 * Bodies are handed on as bytes; the framework counts them against the route's limit, in `Content-Length` and as they
 * arrive. Only plain JSON in UTF-8 is taken.
 */
function takeJsonOnly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const charset = /;\s*charset\s*=\s*"?([^";\s]*)/i.exec(request.headers['content-type'] ?? '')?.[1];
    const encoding = request.headers['content-encoding'];
    const plain = (charset ?? 'utf-8').toLowerCase() === 'utf-8' && (encoding ?? 'identity') === 'identity';
    if (plain) done(null, body);
    else done(Object.assign(new Error('media type'), { code: 'FST_ERR_CTP_INVALID_MEDIA_TYPE' }));
  });
}

/** A connection whose request was under way when the shutdown began would else stay open, and the shutdown wait for it. */
function endConnectionsOnClose(app: FastifyInstance): void {
  let closing = false;
  app.addHook('preClose', async () => {
    closing = true;
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (closing) void reply.header('connection', 'close');
    done(null, payload);
  });
}

/** Before anything of the body is read. */
function refuseUnknownRoutes(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (request.is404) void refuseUnknownRoute(app, request, reply);
    else done();
  });
  app.setNotFoundHandler((request, reply) => refuseUnknownRoute(app, request, reply));
}

function refuseUnknownRoute(app: FastifyInstance, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const [path = '/'] = request.url.split('?');
  const allowed = (['POST', 'GET'] as const).find((method) => app.hasRoute({ method, url: path }));
  if (allowed === undefined) return sendProblem(reply, { code: 'route-unknown' });
  void reply.header('allow', allowed);
  return sendProblem(reply, { code: 'method-not-allowed', detail: `The route takes ${allowed}` });
}

function answerFailure(error: FastifyError, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const mutation = request.routeOptions.config.mutation === true;
  const { problem, unexpected } = failureOf(error, { mutation });
  if (unexpected) request.log.error({ err: error }, 'request failed');
  return sendProblem(reply, problem);
}

/** What is no request at all, or arrived too slowly, has no reply object: the answer is written to the socket. */
function answerBrokenRequest(error: Error & { code?: string }, socket: Socket): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') socket.end(rawProblem({ code: 'request-timeout' }));
  else if (error.code === 'HPE_HEADER_OVERFLOW') socket.end(rawStatus('431 Request Header Fields Too Large'));
  else socket.end(rawStatus('400 Bad Request'));
}

function rawStatus(status: string): string {
  return `HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`;
}

function rawProblem(problem: Problem): string {
  const { status } = problemCatalogue[problem.code];
  const text = problemText(problem);
  const head = [
    `HTTP/1.1 ${status} Refused`,
    'connection: close',
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(text)}`,
  ];
  return `${head.join('\r\n')}\r\n\r\n${text}`;
}
