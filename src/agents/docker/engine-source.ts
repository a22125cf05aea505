/** A live engine, over its Unix socket or TCP. */
import type { IncomingMessage } from 'node:http';
import Docker from 'dockerode';
import { EngineVersion } from './answers.js';
import { CensusFailure } from './census-failure.js';
import {
  answerOf,
  type DockerSource,
  type EngineAnswer,
  type EngineRequest,
  parseAnswer,
  sourceOver,
} from './source.js';

export interface EngineSourceOptions {
  /**
   * Path of the engine's Unix socket. Without it and `host`, Docker's own rules decide (`DOCKER_HOST`, then defaults).
   */
  readonly socketPath?: string;
  readonly host?: string;
  /** TCP port, default 2375, with `tls` 2376. */
  readonly port?: number;
  /** PEM texts for mutual TLS. */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string };
  /** Time for one request with its whole answer, in ms (default 30,000). */
  readonly requestTimeoutMs?: number;
  /** Bytes of one answer (default 64 MiB: the longest list that a manager could have to send). */
  readonly maximumAnswerBytes?: number;
}

const defaultRequestTimeoutMs = 30_000;
const defaultMaximumAnswerBytes = 64 * 1024 * 1024;

/** The API version of which answers.ts speaks: the first with job services (Docker 20.10). */
const spokenApiVersion = '1.41';

/**
 * A source that asks a live engine. It connects with the first request.
 *
 * The API version is pinned, so that an upgrade of the engine doesn't change how it spells a spec (and with it the
 * spec's digest), unless the engine has dropped or doesn't have that version: then the nearest that it has.
 *
 * @throws Error for an unusable `DOCKER_HOST` or certificate directory in the environment
 */
export function engineSource(options: EngineSourceOptions = {}): DockerSource {
  const docker = new Docker(dockerOptions(options));
  const timeoutMs = options.requestTimeoutMs ?? defaultRequestTimeoutMs;
  const maximumBytes = options.maximumAnswerBytes ?? defaultMaximumAnswerBytes;

  const send = async (path: string, query: EngineRequest['query'], signal: AbortSignal): Promise<EngineAnswer> => {
    const either = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    try {
      const response = await dial(docker, path, query, either);
      return { status: response.statusCode ?? 0, body: await boundedBody(response, path, maximumBytes) };
    } catch (error) {
      if (error instanceof CensusFailure) throw error;
      if (either.aborted) throw new CensusFailure('timeout', `GET ${path} was not answered in time`);
      throw new CensusFailure('engine-unreachable', `GET ${path}: ${connectionErrorCode(error)}`);
    }
  };

  let version: string | undefined;
  return sourceOver(async ({ path, query }, signal) => {
    version ??= nearestVersion(await send('/version', undefined, signal));
    const answer = await send(`/v${version}${path}`, query, signal);
    // An engine that was replaced may refuse the version that the one before had: the next request asks anew.
    if (answer.status === 400) version = undefined;
    return answer;
  });
}

function dockerOptions(options: EngineSourceOptions): Docker.DockerOptions {
  // Named explicitly, so that a DOCKER_HOST in the environment doesn't win over what the caller asked for.
  if (options.socketPath !== undefined) return { socketPath: options.socketPath, host: undefined, port: undefined };
  if (options.host === undefined) return {};
  const protocol = options.tls === undefined ? 'http' : 'https';
  return {
    host: options.host,
    port: options.port ?? (options.tls === undefined ? 2375 : 2376),
    protocol,
    ...options.tls,
  };
}

/** Every status is passed on: dockerode reads the body of a status that it doesn't know without a bound. */
const everyStatus: Record<number, true> = Object.fromEntries(
  Array.from({ length: 500 }, (_, index) => [index + 100, true as const]),
);

/** `path` without a query; resolves with the response as soon as its head is there. */
function dial(
  docker: Docker,
  path: string,
  query: EngineRequest['query'],
  abortSignal: AbortSignal,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    docker.modem.dial(
      {
        // dockerode appends `options` as the query to a path that ends in a question mark.
        ...(query === undefined ? { path } : { path: `${path}?`, options: { ...query } }),
        method: 'GET',
        isStream: true,
        statusCodes: everyStatus,
        abortSignal,
      },
      (error, response) => {
        if (error) reject(error);
        else resolve(response as IncomingMessage);
      },
    );
  });
}

/** The request's signal ends the response as well. */
async function boundedBody(response: IncomingMessage, path: string, maximumBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // Leaving the loop early destroys the response.
  for await (const chunk of response as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > maximumBytes) throw new CensusFailure('truncated', `GET ${path} answered over ${maximumBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The code of a network error (`ECONNREFUSED`); its message could hold an address with credentials. */
function connectionErrorCode(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return /^[A-Z_0-9]{1,40}$/.test(code) ? code : 'no connection';
}

const versionAnswer = answerOf(EngineVersion);

function nearestVersion(answer: EngineAnswer): string {
  if (answer.status !== 200) throw new CensusFailure('engine-error', `GET /version answered ${answer.status}`);
  const { ApiVersion: newest, MinAPIVersion: oldest } = parseAnswer('/version', answer.body, versionAnswer);
  if (![newest, oldest ?? newest].every((version) => /^\d{1,4}\.\d{1,4}$/.test(version))) {
    throw new CensusFailure('engine-error', 'GET /version answered no API version');
  }
  if (compareVersions(newest, spokenApiVersion) < 0) return newest;
  return oldest !== undefined && compareVersions(oldest, spokenApiVersion) > 0 ? oldest : spokenApiVersion;
}

function compareVersions(left: string, right: string): number {
  const [leftMajor = 0, leftMinor = 0] = left.split('.').map(Number);
  const [rightMajor = 0, rightMinor = 0] = right.split('.').map(Number);
  return leftMajor - rightMajor || leftMinor - rightMinor;
}
