/** The door for the transport and for other features: who a credential belongs to, read anew for every request. */
import { refuse, type Refused } from '../../contract/problems.js';
import type { Db } from '../../db/pool.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import type { Secret } from '../../secret.js';
import type { AdministratorActor, LauncherActor, NodeActor } from './actor.js';
import { CoalescingLoader } from './coalescing-loader.js';
import {
  hashSecret,
  isBearerSecret,
  isIdentifier,
  type KeptHashes,
  matchSecret,
  parseAuthorization,
} from './credential.js';
import {
  type AdministratorRow,
  type LauncherRow,
  loadAdministrators,
  loadLaunchers,
  loadNodes,
  type NodeCredentialRow,
  useNewest,
} from './rows.js';

export { hasOrganization, lockOrganizationRow as lockOrganization } from './rows.js';

interface Loaders {
  readonly administrators: CoalescingLoader<AdministratorRow>;
  readonly nodes: CoalescingLoader<NodeCredentialRow>;
  readonly launchers: CoalescingLoader<LauncherRow>;
}

/** Shared by all requests to one database; holds questions under way, never an answer. */
const loaders = new WeakMap<Db, Loaders>();

function loadersOf(db: Db): Loaders {
  let known = loaders.get(db);
  if (known === undefined) {
    known = {
      administrators: new CoalescingLoader((ids) => loadAdministrators(db, ids)),
      nodes: new CoalescingLoader((ids) => loadNodes(db, ids)),
      launchers: new CoalescingLoader((ids) => loadLaunchers(db, ids)),
    };
    loaders.set(db, known);
  }
  return known;
}

/**
 * The administrator or operator whom an `Authorization` header belongs to. Refused: `credential-missing`,
 * `credential-refused` (malformed, unknown, retired and revoked alike). Throws where the database can't be asked.
 */
export async function authenticateAdministrator(
  deps: Deps,
  authorizationHeader: string | undefined,
): Promise<AdministratorActor | Refused> {
  if (authorizationHeader === undefined || authorizationHeader === '') return refuse('credential-missing');
  const presented = parseAuthorization(authorizationHeader);
  if (presented === undefined) return refuse('credential-refused');
  const { administrators } = loadersOf(deps.db);
  const verified = await verify(deps, presented.secret, () => administrators.load(presented.credentialId));
  if (isRefused(verified)) return verified;
  const { row } = verified;
  if (row.revoked) return refuse('credential-refused');
  return {
    kind: 'administrator',
    credentialId: row.credential_id,
    principalId: row.subject_id,
    organizationId: row.organization_id,
    role: row.role,
  };
}

/**
 * The node that a Spark token belongs to. Refused: `credential-refused` for an unknown node and a wrong token alike,
 * `node-revoked` only to who has the right token. Throws where the database can't be asked.
 */
export async function authenticateNode(deps: Deps, nodeId: string, nodeToken: Secret): Promise<NodeActor | Refused> {
  if (!isIdentifier(nodeId) || !isBearerSecret(nodeToken)) return refuse('credential-refused');
  const { nodes } = loadersOf(deps.db);
  const verified = await verify(deps, nodeToken, () => nodes.load(nodeId));
  if (isRefused(verified)) return verified;
  const { row } = verified;
  if (row.state === 'written-off') return refuse('node-written-off');
  if (row.revoked || row.state === 'revoked') return refuse('node-revoked');
  return {
    kind: 'node',
    clusterId: row.cluster_id,
    organizationId: row.organization_id,
    nodeId: row.node_id,
    state: row.state,
    aggregate: {
      generation: row.aggregate_generation ?? 0,
      digest: row.aggregate_digest,
      state: row.aggregate_state ?? 'absent',
      completeGeneration: row.complete_generation ?? 0,
    },
  };
}

/**
 * The ingress launcher that a bearer belongs to. Refused: `credential-refused` (malformed, unknown, retired and revoked
 * alike). It says who asks, not that the service is still the designated ingress: that its caller reads itself. Throws where
 * the database can't be asked.
 */
export async function authenticateLauncher(
  deps: Deps,
  credentialId: string,
  secret: Secret,
): Promise<LauncherActor | Refused> {
  if (!isIdentifier(credentialId) || !isBearerSecret(secret)) return refuse('credential-refused');
  const { launchers } = loadersOf(deps.db);
  const verified = await verify(deps, secret, () => launchers.load(credentialId));
  if (isRefused(verified)) return verified;
  const { row, generation } = verified;
  if (row.revoked) return refuse('credential-refused');
  return {
    kind: 'launcher',
    clusterId: row.cluster_id,
    organizationId: row.organization_id,
    serviceId: row.subject_id,
    credentialId: row.credential_id,
    generation,
  };
}

/** How often a credential may be rotated or first used by others between our reading it and noting its first use. */
const MAXIMUM_TRIES = 5;

type VerifiedRow = KeptHashes & { readonly credential_id: string; readonly revoked: boolean };

interface Verified<Row> {
  readonly row: Row;
  /** The one that was presented. */
  readonly generation: number;
}

/** The row whose secret this is. Of a revoked one the use is not noted; the caller says what its revocation means. */
async function verify<Row extends VerifiedRow>(
  deps: Deps,
  secret: Secret,
  load: () => Promise<Row | undefined>,
): Promise<Verified<Row> | Refused> {
  const hash = hashSecret(secret);
  for (let attempt = 0; attempt < MAXIMUM_TRIES; attempt += 1) {
    const row = await load();
    if (row === undefined) return refuse('credential-refused');
    const match = matchSecret(row, hash);
    if (match === 'refused') return refuse('credential-refused');
    const { newest_generation: newest, used_generation: used } = row;
    // What is accepted was used, be it the newest or not.
    if (match === 'accepted') return { row, generation: used ?? newest };
    if (row.revoked || (await useNewest(deps, row.credential_id, newest))) return { row, generation: newest };
    // Rotated, revoked, or used by somebody else in between: what was read is outdated.
  }
  return refuse('unavailable', { retrySafe: true });
}
