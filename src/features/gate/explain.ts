/** Why the phase does not advance: the gates as the advance itself would see them now, never from a cache. */
import { sql } from 'kysely';
import type {
  IFleetCutoverBlocker,
  IFleetCutoverRequiredEntry,
  IFleetCutoverTaskVerdict,
} from '../../contract/derivation.js';
import { maximumPreparedVolumeHandoffs } from '../../contract/limits.js';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import type { Reference } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import { qb } from '../../db/query.js';
import type { ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { demandBlocker } from '../../stored-record.js';
import type { AdministratorActor } from '../auth/actor.js';
import { readCluster } from '../fleet/read-cluster.js';
import { readRuntime } from '../phase/facts.js';
import { listWriteOffs } from '../write-off/facts.js';
import { type ConcernsSubject, factsAbout } from './facts-about.js';
import { gatesTo, nextPhase, standingGates } from './gates.js';
import { loadGateFacts } from './gate-facts.js';

type Subject = MethodRequest<'explainFleetCutover'>['subject'];

/** Items of each list that are shown. */
const shown = 100;
/** What concerns a single subject may be the last of what is missing. */
const everything = maximumPreparedVolumeHandoffs;

export function explainFleetCutover(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'explainFleetCutover'>,
): Promise<MethodResponse<'explainFleetCutover'> | Refused> {
  const { clusterId, subject } = input;
  return readCluster(deps, 'explainFleetCutover', actor, clusterId, async (tx, cluster) => {
    const runtime = present(await readRuntime(tx, clusterId));
    const whole = subject.kind === 'cluster';
    const loaded = await loadGateFacts(
      tx,
      cluster,
      runtime,
      deps.clock.now().getTime(),
      whole ? undefined : everything,
    );
    const next = nextPhase(runtime.phase);
    const about = await subjectRows(tx, clusterId, subject);
    if (about === null) return refuse('record-unknown');
    const concerns: ConcernsSubject = (item) => concernsSubject(item, subject, about.swarmServiceId);
    const facts = whole ? loaded.facts : factsAbout(loaded.facts, concerns);
    const gates = next === null ? standingGates(facts) : gatesTo(next, facts);
    const { pageCount, targetNodes, covered, completeNodes, coveredLastMinute } = loaded.coverage;
    const total = pageCount * targetNodes;
    return {
      runtime: loaded.runtime,
      next,
      // Of a single subject: gates that are met are left out, as are those that wait for others.
      gates: whole ? gates : gates.filter((gate) => gate.missing.some(concerns)),
      coverage: { total, covered, remaining: total - covered, completeNodes, targetNodes, coveredLastMinute },
      verdicts: about.verdicts,
      blockers: about.blockers,
      entries: about.entries,
      writeOffs: await listWriteOffs(tx, clusterId),
    };
  });
}

function concernsSubject(
  { nodeId, swarmServiceId }: Parameters<ConcernsSubject>[0],
  subject: Subject,
  ofSubject: string | null,
): boolean {
  switch (subject.kind) {
    case 'cluster':
      return true;
    case 'node':
      return nodeId === subject.nodeId;
    case 'service':
      return swarmServiceId !== null && swarmServiceId === ofSubject;
    case 'handoff':
      return nodeId === subject.nodeId && swarmServiceId === ofSubject;
    default: {
      const unexpected: never = subject;
      throw new TypeError(`unexpected subject ${JSON.stringify(unexpected)}`);
    }
  }
}

interface About {
  readonly swarmServiceId: string | null;
  readonly verdicts: IFleetCutoverTaskVerdict[];
  readonly blockers: IFleetCutoverBlocker[];
  readonly entries: IFleetCutoverRequiredEntry[];
}

/** Null where the subject is not known. */
async function subjectRows(tx: ReadTx, clusterId: string, subject: Subject): Promise<About | null> {
  switch (subject.kind) {
    case 'cluster': {
      const [verdicts, blockers] = await Promise.all([
        verdictRows(tx, clusterId, sql`verdict = 'unknown'`),
        blockerRows(tx, clusterId, sql`true`),
      ]);
      return { swarmServiceId: null, verdicts, blockers, entries: [] };
    }
    case 'node': {
      const node = await tx.maybe(
        sql`select from control.nodes where cluster_id = ${clusterId} and node_id = ${subject.nodeId}`.compile(qb),
      );
      if (node === undefined) return null;
      const here = sql`node_id = ${subject.nodeId}`;
      const [verdicts, blockers, entries] = await Promise.all([
        verdictRows(tx, clusterId, here),
        blockerRows(tx, clusterId, here),
        entryRows(tx, clusterId, sql`entry.node_id = ${subject.nodeId}`),
      ]);
      return { swarmServiceId: null, verdicts, blockers, entries };
    }
    case 'service': {
      const swarmServiceId = await swarmServiceOf(tx, clusterId, subject.serviceId);
      if (swarmServiceId === null) return null;
      const [verdicts, blockers, entries] = await Promise.all([
        verdictRows(tx, clusterId, sql`swarm_service_id = ${swarmServiceId}`),
        blockerRows(
          tx,
          clusterId,
          sql`record::jsonb ->> 'swarmServiceId' = ${swarmServiceId}
          or record::jsonb -> 'entry' ->> 'serviceId' = ${subject.serviceId}`,
        ),
        entryRows(tx, clusterId, sql`entry.service_id = ${subject.serviceId}`),
      ]);
      return { swarmServiceId, verdicts, blockers, entries };
    }
    case 'handoff': {
      const entries = await entryRows(
        tx,
        clusterId,
        sql`entry.node_id = ${subject.nodeId} and entry.handoff_id = ${subject.id}`,
      );
      const [entry] = entries;
      if (entry === undefined) return null;
      const [verdicts, blockers] = await Promise.all([
        verdictRows(tx, clusterId, sql`swarm_service_id = ${entry.swarmServiceId} and node_id = ${subject.nodeId}`),
        blockerRows(tx, clusterId, sql`node_id = ${subject.nodeId} and handoff_id = ${subject.id}`),
      ]);
      return { swarmServiceId: entry.swarmServiceId, verdicts, blockers, entries };
    }
    default: {
      const unexpected: never = subject;
      throw new TypeError(`unexpected subject ${JSON.stringify(unexpected)}`);
    }
  }
}

type Condition = ReturnType<typeof sql>;

async function swarmServiceOf(tx: ReadTx, clusterId: string, serviceId: string): Promise<string | null> {
  const row = await tx.maybe(
    sql<{ id: string }>`
      select service ->> 'swarmServiceId' as id from control.scope_heads head
      join control.scope_revisions revision using (cluster_id, generation),
        jsonb_array_elements(revision.record::jsonb -> 'services') as service
      where head.cluster_id = ${clusterId} and service ->> 'serviceId' = ${serviceId}`.compile(qb),
  );
  return row?.id ?? null;
}

function verdictRows(tx: ReadTx, clusterId: string, condition: Condition): Promise<IFleetCutoverTaskVerdict[]> {
  return tx.rows(
    sql<IFleetCutoverTaskVerdict>`
      select swarm_task_id as "swarmTaskId", swarm_service_id as "swarmServiceId", node_id as "nodeId", verdict, reason
      from control.task_verdicts where cluster_id = ${clusterId} and (${condition}) order by swarm_task_id limit ${shown}`.compile(
      qb,
    ),
  );
}

async function blockerRows(tx: ReadTx, clusterId: string, condition: Condition): Promise<IFleetCutoverBlocker[]> {
  const rows = await tx.rows(
    sql<{ id: string; record: string }>`
      select blocker_id as id, record from control.blockers where cluster_id = ${clusterId} and until is null and (${condition})
      order by part, blocker_id limit ${shown}`.compile(qb),
  );
  return rows.map(demandBlocker);
}

async function entryRows(tx: ReadTx, clusterId: string, condition: Condition): Promise<IFleetCutoverRequiredEntry[]> {
  const rows = await tx.rows(
    sql<
      Omit<IFleetCutoverRequiredEntry, 'handoff'> & { generation: number | null; digest: Reference['digest'] | null }
    >`
      select entry.handoff_id as id, entry.node_id as "nodeId", entry.service_id as "serviceId",
        entry.swarm_service_id as "swarmServiceId", coalesce(service.name, entry.swarm_service_id) as "serviceName",
        entry.mount_identity_digest as "mountIdentityDigest", entry.mount_path as "mountPath", entry.volume_name as "volumeName",
        case when lost.cluster_id is not null then 'written-off' when head.handoff_id is null then 'missing' else 'prepared' end as state,
        head.generation, head.digest, coalesce(blocker.codes, '{}') as blockers
      from control.required_entries entry
      left join control.observed_services service
        on service.cluster_id = entry.cluster_id and service.swarm_service_id = entry.swarm_service_id
      left join control.handoff_heads head on head.cluster_id = entry.cluster_id and head.node_id = entry.node_id
        and head.handoff_id = entry.handoff_id and not head.removed
      left join lateral (
        select lost.cluster_id from control.write_offs lost
        where lost.cluster_id = entry.cluster_id and lost.node_id = entry.node_id and lost.state = 'confirmed'
          and (lost.handoff_id is null or lost.handoff_id = entry.handoff_id) limit 1
      ) lost on true
      left join lateral (
        select array_agg(distinct blocker.code order by blocker.code) as codes from control.blockers blocker
        where blocker.cluster_id = entry.cluster_id and blocker.node_id = entry.node_id
          and blocker.handoff_id = entry.handoff_id and blocker.until is null
      ) blocker on true
      where entry.cluster_id = ${clusterId} and entry.until is null and (${condition})
      order by entry.node_id, entry.handoff_id limit ${shown}`.compile(qb),
  );
  return rows.map(({ generation, digest, ...entry }) => ({
    ...entry,
    handoff: generation === null || digest === null ? null : { id: entry.id, generation, digest },
  }));
}
