import { randomBytes } from 'node:crypto';
import { chown, mkdir, open, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Secret } from '../../secret.js';
import type { Account } from './account.js';
import type { Binaries } from './binaries.js';
import { EmbeddedError, errorCode } from './error.js';
import { makeStaging, publish, type Place } from './place.js';
import { runToEnd } from './process.js';

/** Passwords of the cluster's two logins, made with it: 256 random bits each. */
export interface Credentials {
  readonly owner: Secret;
  readonly service: Secret;
}

/**
 * Makes the cluster where there is none, and checks that an existing one is of the server's major version. The directory
 * appears complete in one step, so that of several processes one makes it, and a killed one leaves nothing. True: made here.
 */
export async function ensureCluster(place: Place, binaries: Binaries): Promise<boolean> {
  const found = await versionOf(place);
  if (found === undefined) return makeCluster(place, binaries);
  if (binaries.major !== found.trim()) {
    throw new EmbeddedError(
      'embedded-version',
      `the data in ${place.cluster} is of Postgres ${found.trim()}, the embedded server is ${binaries.major}. ` +
        'Dump it with the program version that wrote it and restore it into a new EMBEDDED_DATA_DIR',
    );
  }
  return false;
}

/** The major version of the cluster's data; undefined where there is no cluster. */
export async function versionOf({ cluster }: Pick<Place, 'cluster'>): Promise<string | undefined> {
  return await readFile(join(cluster, 'PG_VERSION'), 'utf8').catch(ignoreAbsent);
}

/** Reads the passwords. Throws where the file is missing or damaged: without it nobody can log in. */
export async function readCredentials(place: Place): Promise<Credentials> {
  try {
    const stored = JSON.parse(await readFile(place.credentials, 'utf8')) as Record<string, unknown>;
    if (typeof stored['owner'] !== 'string' || typeof stored['service'] !== 'string') throw new Error('damaged');
    return { owner: new Secret(stored['owner']), service: new Secret(stored['service']) };
  } catch {
    // The cause is left out: an error of JSON.parse quotes the text.
    throw new EmbeddedError('embedded-unreachable', `the credentials file ${place.credentials} can't be read`);
  }
}

async function makeCluster(place: Place, binaries: Binaries): Promise<boolean> {
  const staging = await makeStaging(place.server, place.account === undefined ? 0o700 : 0o711);
  try {
    await fillCluster(staging, place, binaries);
    return await publish(staging, place.server);
  } catch (error) {
    await rm(staging, { recursive: true, force: true });
    throw error;
  }
}

async function fillCluster(staging: string, place: Place, binaries: Binaries): Promise<void> {
  const { account } = place;
  const owner = randomBytes(32).toString('base64url');
  const service = randomBytes(32).toString('base64url');
  for (const directory of [place.cluster, place.log]) {
    await mkdir(join(staging, basename(directory)), { mode: 0o700 });
    await giveTo(account, join(staging, basename(directory)));
  }
  const passwordFile = join(staging, 'password');
  await writeFile(passwordFile, owner, { mode: 0o600 });
  await giveTo(account, passwordFile);
  const { status, output } = await runToEnd(
    binaries.initdb,
    [
      ['-D', join(staging, basename(place.cluster))],
      ['-U', 'postgres'],
      ['--auth=scram-sha-256', `--pwfile=${passwordFile}`],
      ['--encoding=UTF8', '--locale=C', '--no-instructions'],
    ].flat(),
    { directory: staging, account },
  );
  if (status !== 0) {
    throw new EmbeddedError('embedded-start-failed', `initdb failed with status ${status}:\n${output.slice(-2_000)}`);
  }
  await rm(passwordFile);
  await writeDurably(join(staging, basename(place.credentials)), JSON.stringify({ owner, service }));
}

async function giveTo(account: Account | undefined, path: string): Promise<void> {
  if (account !== undefined) await chown(path, account.uid, account.gid);
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

function ignoreAbsent(error: unknown): undefined {
  if (errorCode(error) !== 'ENOENT') throw error;
  return undefined;
}
