/** What only the owner of the database sees: all rows of the private tables, and the sealed bearers. */
import pg from 'pg';
import type { Config } from '../config.js';
import { openForCommand } from '../database.js';
import { connectionConfig, parseDatabaseUrl } from '../db/connection.js';
import { open } from '../features/ingress/sealing.js';
import { readKeyRing } from '../key-ring.js';
import type { Secret } from '../secret.js';

/** Does the work as the owner, beside the running service. */
export async function asOwner<T>(config: Config, work: (owner: pg.Client) => Promise<T>): Promise<T> {
  const access = await openForCommand(config);
  const owner = new pg.Client(connectionConfig(parseDatabaseUrl(access.ownerUrl)));
  try {
    await owner.connect();
    return await work(owner);
  } finally {
    await owner.end();
    await access.release();
  }
}

export interface TableText {
  readonly name: string;
  readonly rowCount: number;
  /** All columns of all rows; bytes are hexadecimal. */
  readonly text: string;
}

/** Every table of the schema `control`, one after the other. */
export async function* privateTables(owner: pg.Client): AsyncGenerator<TableText> {
  const tables = await owner.query<{ name: string }>(
    `select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname = 'control' order by 1`,
  );
  for (const { name } of tables.rows) {
    const { rows } = await owner.query<{ row: string }>(`select t::text as row from ${name} as t`);
    yield { name, rowCount: rows.length, text: rows.map(({ row }) => row).join('\n') };
  }
}

export interface OpenedBearer {
  readonly credentialId: string;
  readonly generation: number;
  readonly bearer: Secret;
}

interface SealedBearer {
  readonly cluster_id: string;
  readonly service_id: string;
  readonly credential_id: string;
  readonly version: string;
  readonly key_id: string;
  readonly nonce: Buffer;
  readonly ciphertext: Buffer;
}

/** Every bearer that is sealed, opened with the configured keys, in the order of the generations. */
export async function openedBearers(owner: pg.Client, { keys }: Config): Promise<OpenedBearer[]> {
  const ring = await readKeyRing(keys);
  const { rows } = await owner.query<SealedBearer>(
    `select cluster_id, service_id, credential_id, version, key_id, nonce, ciphertext
       from control.sealed_secrets order by credential_id, version`,
  );
  return rows.map((row) => {
    const { cluster_id: clusterId, service_id: serviceId, credential_id: credentialId, nonce, ciphertext } = row;
    const generation = Number(row.version);
    const sealed = { keyId: row.key_id, nonce, ciphertext };
    const bearer = open(ring, { clusterId, serviceId, credentialId, generation }, sealed);
    return { credentialId, generation, bearer };
  });
}
