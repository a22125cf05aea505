/**
 * Sending one request and receiving one bounded answer, over a pool of kept connections. It repeats nothing and follows
 * no redirect, so that a token goes to the configured origin only.
 */
import { type Dispatcher, Pool } from 'undici';
import { TransportError } from './errors.js';
import { parseServiceUrl } from './service-url.js';

export interface TransportOptions {
  /** The service's URL, `https:` unless it is on this machine. */
  readonly url: string;
  /** Permits plain `http:` to another machine. */
  readonly allowPlainHttp?: boolean;
  /** PEM of a private certificate authority. */
  readonly certificateAuthority?: string;
  /** Kept connections at most (default 8). */
  readonly connections?: number;
  /** Time to connect, in ms (default 5,000). */
  readonly connectTimeoutMs?: number;
  /** Time for one request with its whole answer, in ms (default 90,000: longer than the longest watch). */
  readonly requestTimeoutMs?: number;
}

export interface OutgoingRequest {
  /** Route, e.g. `/requests/fleet/createCluster`. */
  readonly path: string;
  /** One strict JSON document. */
  readonly body: Uint8Array;
  readonly bearer?: string;
  /** Bytes of a 2xx answer. */
  readonly maximumAnswerBytes: number;
  /** Bytes of every other answer. */
  readonly maximumProblemBytes: number;
  readonly signal?: AbortSignal | undefined;
}

export interface ReceivedAnswer {
  readonly status: number;
  /** Media type without parameters, lower case; empty where there was none. */
  readonly mediaType: string;
  /** `Retry-After` in whole seconds; null where there was none, or a date. */
  readonly retryAfterSeconds: number | null;
  readonly body: Uint8Array;
}

export interface Transport {
  /** @throws TransportError when the whole answer did not arrive, in time and within its bound */
  post(request: OutgoingRequest): Promise<ReceivedAnswer>;
  /** Waits for what is under way; then every `post` fails with `closed`. */
  close(): Promise<void>;
}

/** @throws ServiceUrlError for a URL that is none, has credentials, or leads to another machine without `https:` */
export function openTransport(options: TransportOptions): Transport {
  const { origin, prefix } = parseServiceUrl(options.url, options);
  const requestTimeoutMs = options.requestTimeoutMs ?? 90_000;
  const pool = new Pool(origin, {
    connections: options.connections ?? 8,
    connect: {
      timeout: options.connectTimeoutMs ?? 5_000,
      ...(options.certificateAuthority === undefined ? {} : { ca: options.certificateAuthority }),
    },
    // The deadline below covers both; zero switches them off.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  return {
    post: (request) =>
      withDeadline(requestTimeoutMs, request.signal, async (signal) => {
        const response = await pool.request({
          method: 'POST',
          path: `${prefix}${request.path}`,
          headers: requestHeaders(request),
          body: request.body,
          signal,
        });
        return await receive(response, request);
      }),
    close: () => pool.close(),
  };
}

function requestHeaders(request: OutgoingRequest): Record<string, string> {
  return {
    'content-type': 'application/json',
    accept: 'application/json, application/problem+json',
    ...(request.bearer === undefined ? {} : { authorization: `Bearer ${request.bearer}` }),
  };
}

async function receive(response: Dispatcher.ResponseData, request: OutgoingRequest): Promise<ReceivedAnswer> {
  const { statusCode: status, headers } = response;
  const maximumBytes = status >= 200 && status < 300 ? request.maximumAnswerBytes : request.maximumProblemBytes;
  const body = await boundedBody(response, maximumBytes);
  const retryAfter = headerText(headers['retry-after']);
  return {
    status,
    mediaType: (headerText(headers['content-type']).split(';')[0] ?? '').trim().toLowerCase(),
    retryAfterSeconds: /^\d{1,9}$/.test(retryAfter) ? Number(retryAfter) : null,
    body,
  };
}

function headerText(value: string | string[] | undefined): string {
  return typeof value === 'string' ? value : '';
}

/** Reads at most `maximumBytes`; leaving the loop destroys the stream and with it the connection. */
async function boundedBody({ body, headers }: Dispatcher.ResponseData, maximumBytes: number): Promise<Uint8Array> {
  const tooLarge = () => {
    body.on('error', () => {}); // its own abort, which nobody else waits for
    body.destroy();
    return new TransportError('answer-too-large', { outcome: 'unknown' });
  };
  if (Number(headerText(headers['content-length'])) > maximumBytes) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > maximumBytes) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Runs `work` until it is done, the time is over or the caller's signal aborts, and says which it was. */
async function withDeadline<T>(
  timeoutMs: number,
  callers: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  if (callers?.aborted === true) throw new TransportError('aborted', { outcome: 'not-sent' });
  const ending = new AbortController();
  let ended: 'timeout' | 'aborted' | undefined;
  const end = (how: 'timeout' | 'aborted') => {
    ended ??= how;
    ending.abort();
  };
  const timer = setTimeout(() => end('timeout'), timeoutMs);
  const onAbort = () => end('aborted');
  callers?.addEventListener('abort', onAbort, { once: true });
  try {
    return await work(ending.signal);
  } catch (error) {
    if (error instanceof TransportError) throw error;
    if (ended !== undefined) throw new TransportError(ended, { outcome: 'unknown' });
    throw networkError(error);
  } finally {
    clearTimeout(timer);
    callers?.removeEventListener('abort', onAbort);
  }
}

/** Failures that come before the first byte of the request. A reset may come at any time and is not among them. */
const notSent = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'CERT_HAS_EXPIRED',
  'ERR_TLS_CERT_ALTNAME_INVALID',
]);

/** Keeps of the stack's error the code alone: the error itself refers to sockets and, through them, to requests. */
function networkError(error: unknown): TransportError {
  const systemCode = systemCodeOf(error);
  if (systemCode === 'UND_ERR_CLOSED' || systemCode === 'UND_ERR_DESTROYED') {
    return new TransportError('closed', { outcome: 'not-sent' });
  }
  return systemCode !== undefined && notSent.has(systemCode)
    ? new TransportError('connection-failed', { outcome: 'not-sent', systemCode })
    : new TransportError('connection-lost', { outcome: 'unknown', systemCode });
}

function systemCodeOf(error: unknown): string | undefined {
  // Several addresses were tried (`localhost` as ::1 and 127.0.0.1): the last one's failure stands for all.
  const one: unknown = error instanceof AggregateError ? error.errors.at(-1) : error;
  const code = one instanceof Error && 'code' in one ? one.code : undefined;
  return typeof code === 'string' && /^[A-Z_0-9]{1,64}$/.test(code) ? code : undefined;
}
