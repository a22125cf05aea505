import type { FastifyInstance, FastifyRequest } from 'fastify';
import { type DestinationStream, type Logger, pino } from 'pino';
import type { Config } from '../config.js';

export type { Logger } from 'pino';

/**
 * The process's log: JSON lines. Nothing that came over the wire is ever logged but a known route, the verb, and who was
 * authenticated; so no level shows a body, a header or a token.
 */
export function createLogger(level: Config['logLevel'], destination?: DestinationStream): Logger {
  const options = { level, serializers: { err: describeError, req: describeNothing, res: describeNothing } };
  return destination === undefined ? pino(options) : pino(options, destination);
}

/** Fastify's own lines carry the request and the reply; ours say what is to be said of them. */
function describeNothing(): undefined {
  return undefined;
}

interface DescribedError {
  readonly type: string;
  readonly message: string;
  readonly code?: string;
  readonly constraint?: string;
  readonly stack?: string;
  readonly cause?: DescribedError;
}

const MAXIMUM_CAUSES = 4;

/**
 * Fields that are known to hold no values. Postgres says in `detail`, `where` and `internalQuery`, and for some codes in
 * the message, what the values were: of its errors only the code and the constraint are shown.
 */
export function describeError(error: unknown, depth = 0): DescribedError {
  if (!(error instanceof Error)) return { type: typeof error, message: '' };
  const { code, constraint, severity } = error as Error & { code?: unknown; constraint?: unknown; severity?: unknown };
  const fromPostgres = typeof severity === 'string';
  return {
    type: error.name,
    message: fromPostgres ? 'refused by Postgres' : error.message,
    ...(typeof code === 'string' ? { code } : {}),
    ...(typeof constraint === 'string' ? { constraint } : {}),
    ...(error.stack === undefined ? {} : { stack: framesOf(error.stack) }),
    ...(error.cause === undefined || depth >= MAXIMUM_CAUSES ? {} : { cause: describeError(error.cause, depth + 1) }),
  };
}

/** The stack without the message that stands above it. */
function framesOf(stack: string): string {
  const lines = stack.split('\n').filter((line) => /^\s+at /.test(line));
  return lines.join('\n');
}

/** One line per answered request: verb, route, status, milliseconds, and who it was. */
export function logRequests(app: FastifyInstance, logger: Logger): void {
  app.addHook('onResponse', (request, reply, done) => {
    // A page read has no time for a line that nobody gets.
    if (logger.isLevelEnabled('info')) {
      request.log.info(
        {
          method: request.method,
          path: routeOf(request),
          status: reply.statusCode,
          ms: Math.round(reply.elapsedTime * 10) / 10,
          ...(request.principal === null ? {} : { principal: request.principal }),
        },
        'request',
      );
    }
    done();
  });
}

/** The route as it is registered. What else a URL may contain, a token by mistake, is nobody's business. */
function routeOf(request: FastifyRequest): string {
  return request.is404 ? 'unknown' : (request.routeOptions.url ?? 'unknown');
}
