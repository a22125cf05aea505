/**
 * Handoffs one by one: every generation's record with its claim intent, the chain of its generations, the head, and the volume.
 */
import { sql } from 'kysely';
import {
  fleetCutoverPreparedVolumeHandoffIntentRecord,
  type IFleetCutoverPreparedVolumeHandoffIntent,
} from '../../contract/handoff.js';
import { handoffId, recordId } from '../../contract/record-id.js';
import { qb } from '../../db/query.js';
import { volumeId } from '../fleet/volumes.js';
import type { HandoffSet } from './handoff-set.js';
import { judgeSealed } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

type Handoff = IFleetCutoverPreparedVolumeHandoffIntent;

interface StoredRevision {
  readonly nodeId: string;
  readonly id: string;
  readonly aggregateGeneration: number;
  readonly generation: number;
  readonly digest: string;
  /** Null: removed. */
  readonly record: string | null;
}

/** A handoff as its revisions leave it. */
interface History {
  readonly nodeId: string;
  readonly id: string;
  generation: number;
  digest: string;
  removed: boolean;
  /** The newest sound record. */
  newest: Handoff | null;
  /** A row of it is broken or gone: what follows from it is not compared. */
  broken: boolean;
}

const revisionsPerPage = 256;

export async function verifyHandoffs(
  verification: Verification,
  cluster: VerifiedCluster,
  set: HandoffSet,
): Promise<void> {
  const { tx } = verification;
  const { clusterId } = cluster;
  const heads = new HeadComparison(verification, cluster, set);
  let history: History | undefined;
  const pages = pagesOf<StoredRevision>((last) =>
    tx.rows(
      sql<StoredRevision>`
        select node_id as "nodeId", handoff_id as id, aggregate_generation as "aggregateGeneration", generation, digest, record
        from control.handoff_revisions
        where cluster_id = ${clusterId} and (node_id, handoff_id, aggregate_generation)
          > (${last?.nodeId ?? ''}, ${last?.id ?? ''}, ${last?.aggregateGeneration ?? 0}::bigint)
        order by node_id, handoff_id, aggregate_generation limit ${revisionsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    const finished: History[] = [];
    for (const row of rows) {
      if (history === undefined || history.nodeId !== row.nodeId || history.id !== row.id) {
        if (history !== undefined) finished.push(history);
        const { nodeId, id } = row;
        const broken = verification.findings.hasAny('handoff_revisions', {
          cluster_id: clusterId,
          node_id: nodeId,
          handoff_id: id,
        });
        history = { nodeId, id, generation: 0, digest: '', removed: true, newest: null, broken };
      }
      takeRevision(verification, cluster, history, row);
    }
    await heads.compare(finished);
    verification.advance(rows.length);
  }
  await heads.compare(history === undefined ? [] : [history], true);
}

function takeRevision(
  { findings }: Verification,
  cluster: VerifiedCluster,
  history: History,
  row: StoredRevision,
): void {
  const { record, generation, digest } = row;
  const key = (aggregateGeneration: number) => ({
    cluster_id: cluster.clusterId,
    node_id: row.nodeId,
    handoff_id: row.id,
    aggregate_generation: aggregateGeneration,
  });
  const report = (what: string, how: string): void => {
    if (!history.broken) findings.add('handoff_revisions', key(row.aggregateGeneration), what, how);
    history.broken = true;
  };
  if (record === null) {
    if (history.removed || generation !== history.generation || digest !== history.digest) {
      report(
        'the removal does not follow',
        `the generation before is ${history.generation} ${history.digest}, the row has ${generation} ${digest}`,
      );
    }
    history.removed = true;
    return;
  }
  const { value, fault } = judgeSealed(fleetCutoverPreparedVolumeHandoffIntentRecord, { generation, digest, record });
  if (fault !== null || value === null) {
    // A broken record is the row's own fault, whatever else is known of the handoff.
    findings.add(
      'handoff_revisions',
      key(row.aggregateGeneration),
      'the record was changed',
      fault ?? 'it cannot be read',
    );
    history.broken = true;
  } else {
    const contradiction = contradictionOf(cluster, row, value, history);
    if (contradiction !== null) report('the record does not follow', contradiction);
    history.newest = value;
  }
  Object.assign(history, { generation, digest, removed: false });
}

function contradictionOf(
  cluster: VerifiedCluster,
  row: StoredRevision,
  handoff: Handoff,
  before: History,
): string | null {
  const { clusterId, clusterLife, organizationId } = cluster;
  const { claimIntent, predecessor } = handoff;
  const key = {
    nodeId: handoff.nodeId,
    serviceId: handoff.serviceId,
    mountIdentityDigest: handoff.observedMount.mountIdentityDigest,
  };
  if (handoff.nodeId !== row.nodeId || handoff.id !== row.id) return `the record is of ${handoff.nodeId} ${handoff.id}`;
  if (handoff.id !== handoffId(clusterLife, key)) return 'its id is not the one of node, service and mount';
  if (handoff.clusterId !== clusterId || claimIntent.organizationId !== organizationId)
    return 'it is of another cluster or organization';
  if (handoff.volumeId !== volumeId(clusterLife, key)) return 'its volumeId is not the one of node, service and mount';
  if (
    claimIntent.controllerId !== cluster.controllerId ||
    claimIntent.controllerEpoch !== cluster.controllerEpoch ||
    claimIntent.runtimeNamespace !== cluster.runtimeNamespace
  )
    return 'its claim intent has another controller or namespace than the cluster';
  if (claimIntent.id !== recordId('cl', { clusterLife, handoffId: handoff.id }))
    return 'its claim intent has another id';
  if (claimIntent.generation !== handoff.generation) return 'its claim intent has another generation';
  if (row.generation !== before.generation + 1) return `generation ${row.generation} comes after ${before.generation}`;
  const first = before.generation === 0;
  if ((predecessor?.digest ?? '') !== before.digest || (predecessor === null) !== first) {
    return `it names ${predecessor?.digest ?? 'nothing'} as its predecessor, which is ${first ? 'nothing' : before.digest}`;
  }
  const claimBefore = before.newest?.claimIntent.digest ?? null;
  return (claimIntent.predecessor?.digest ?? null) === claimBefore
    ? null
    : 'its claim intent names another predecessor';
}

interface StoredHead {
  readonly nodeId: string;
  readonly id: string;
  readonly generation: number;
  readonly digest: string;
  readonly claimDigest: string;
  readonly requestDigest: string;
  readonly removed: boolean;
}

/** Heads stand in the same order as the revisions; each call takes those up to the last finished handoff. */
class HeadComparison {
  readonly #verification: Verification;
  readonly #cluster: VerifiedCluster;
  readonly #set: HandoffSet;
  #after = { nodeId: '', id: '' };

  constructor(verification: Verification, cluster: VerifiedCluster, set: HandoffSet) {
    this.#verification = verification;
    this.#cluster = cluster;
    this.#set = set;
  }

  /** `rest`: no handoff follows, so that heads behind the last one belong to nothing. */
  async compare(histories: readonly History[], rest = false): Promise<void> {
    const last = histories.at(-1);
    if (last === undefined && !rest) return;
    const { tx, findings } = this.#verification;
    const { clusterId } = this.#cluster;
    const bound = rest ? sql`` : sql`and (node_id, handoff_id) <= (${last?.nodeId ?? ''}, ${last?.id ?? ''})`;
    const rows = await tx.rows(
      sql<StoredHead>`
        select node_id as "nodeId", handoff_id as id, generation, digest, claim_digest as "claimDigest",
          request_digest as "requestDigest", removed
        from control.handoff_heads
        where cluster_id = ${clusterId} and (node_id, handoff_id) > (${this.#after.nodeId}, ${this.#after.id}) ${bound}`.compile(
        qb,
      ),
    );
    if (last !== undefined) this.#after = { nodeId: last.nodeId, id: last.id };
    const heads = new Map(rows.map((row) => [`${row.nodeId}\0${row.id}`, row]));
    for (const history of histories) {
      const identity = `${history.nodeId}\0${history.id}`;
      this.#compareHead(history, heads.get(identity));
      heads.delete(identity);
    }
    for (const { nodeId, id } of heads.values()) {
      // Its revisions may be what is gone.
      if (this.#set.get(nodeId, id) !== undefined) continue;
      findings.add(
        'handoff_heads',
        { cluster_id: clusterId, node_id: nodeId, handoff_id: id },
        'the row should not be there',
        'the handoff has no revision',
      );
    }
    await this.#compareVolumes(histories);
  }

  #compareHead(history: History, head: StoredHead | undefined): void {
    const { findings } = this.#verification;
    const { nodeId, id, newest, broken } = history;
    const key = { cluster_id: this.#cluster.clusterId, node_id: nodeId, handoff_id: id };
    const prepared = this.#set.get(nodeId, id);
    if (head === undefined) {
      findings.add('handoff_heads', key, 'the row is missing', `the handoff has ${history.generation} generations`);
      return;
    }
    const expected = prepared ?? (broken ? head : history);
    if (head.removed !== (prepared === undefined)) {
      findings.add(
        'handoff_heads',
        key,
        'removed is wrong',
        `the revisions leave it ${prepared === undefined ? 'removed' : 'prepared'}`,
      );
    } else if (head.generation !== expected.generation || head.digest !== expected.digest) {
      findings.add(
        'handoff_heads',
        key,
        'the head is not the newest generation',
        `that is ${expected.generation} ${expected.digest}, the row has ${head.generation} ${head.digest}`,
      );
    } else if (!broken && newest !== null) {
      const { claimIntent } = newest;
      if (head.claimDigest === claimIntent.digest && head.requestDigest === claimIntent.binding.requestDigest) return;
      findings.add(
        'handoff_heads',
        key,
        'claim_digest or request_digest is wrong',
        `the newest record has ${claimIntent.digest} and ${claimIntent.binding.requestDigest}`,
      );
    }
  }

  async #compareVolumes(histories: readonly History[]): Promise<void> {
    const { tx, findings } = this.#verification;
    const { clusterId, clusterLife } = this.#cluster;
    const keys = histories.flatMap(({ newest }) =>
      newest === null
        ? []
        : [
            {
              nodeId: newest.nodeId,
              serviceId: newest.serviceId,
              mountIdentityDigest: newest.observedMount.mountIdentityDigest,
            },
          ],
    );
    if (keys.length === 0) return;
    const rows = await tx.rows(
      sql<{ ordinal: number; volumeId: string | null }>`
        select wanted.ordinal, volume.volume_id as "volumeId"
        from unnest(${keys.map((key) => key.nodeId)}::text[], ${keys.map((key) => key.serviceId)}::text[],
          ${keys.map((key) => key.mountIdentityDigest)}::text[]) with ordinality
          as wanted (node_id, service_id, mount_identity_digest, ordinal)
        left join control.volumes volume on volume.cluster_id = ${clusterId} and volume.node_id = wanted.node_id
          and volume.service_id = wanted.service_id and volume.mount_identity_digest = wanted.mount_identity_digest`.compile(
        qb,
      ),
    );
    for (const { ordinal, volumeId: stored } of rows) {
      const key = keys[ordinal - 1]!;
      const expected = volumeId(clusterLife, key);
      if (stored === expected) continue;
      findings.add(
        'volumes',
        {
          cluster_id: clusterId,
          node_id: key.nodeId,
          service_id: key.serviceId,
          mount_identity_digest: key.mountIdentityDigest,
        },
        stored === null ? 'the row is missing' : 'the row was changed',
        `the handoff's volume is ${expected}`,
      );
    }
  }
}
