/** What the host commands do. It needs the server's own parts, and is loaded only where one of them runs. */
import { join } from 'node:path';
import { systemClock } from '../clock.js';
import { readConfig } from '../config.js';
import { openForCommand } from '../database.js';
import { migrate, type MigrateResult } from '../db/migrate.js';
import { bootstrap, revokeOnHost } from '../features/auth/host-operations.js';
import { resealAll } from '../features/ingress/operations.js';
import { onHostDatabase } from '../host-access.js';
import { readKeyRing } from '../key-ring.js';
import { UsageError } from './output.js';
import type { Environment } from './settings.js';

const MIGRATIONS = join(import.meta.dirname, '..', '..', 'migrations');

type Bootstrap = Parameters<typeof bootstrap>[1];

export function bootstrapOnHost(environment: Environment, input: Bootstrap): ReturnType<typeof bootstrap> {
  return onHostDatabase(readConfig(environment), (deps) => bootstrap(deps, input));
}

export function revokeCredentialOnHost(
  environment: Environment,
  credentialId: string,
): ReturnType<typeof revokeOnHost> {
  return onHostDatabase(readConfig(environment), (deps) => revokeOnHost(deps, credentialId));
}

/** How many secrets were sealed again, and under which key. Throws UsageError where there is none. */
export async function resealOnHost(
  environment: Environment,
): Promise<{ readonly count: number; readonly keyId: string }> {
  const config = readConfig(environment);
  const ring = await readKeyRing(config.keys);
  const [newest] = ring;
  if (newest === undefined) throw new UsageError('KEY_ENCRYPTION_KEYS_FILE has to name the keys, the new one first');
  return { count: await onHostDatabase(config, (deps) => resealAll(deps, ring)), keyId: newest.keyId };
}

export async function migrateOnHost(environment: Environment): Promise<MigrateResult> {
  const { ownerUrl, serviceUrl, release } = await openForCommand(readConfig(environment));
  try {
    return await migrate({ ownerUrl, serviceUrl, directory: MIGRATIONS, clock: systemClock });
  } finally {
    await release();
  }
}
