/** Break-glass: what is declared lost stops being waited for, and the set is derived again. */
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { handoffId } from '../../contract/record-id.js';
import { referenceOf, sameReference } from '../../contract/schema.js';
import type { IFleetCutoverWriteOff, TWriteOffSubject } from '../../contract/write-off.js';
import { present } from '../../db/present.js';
import type { Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { mutate } from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import { type Cluster, clusterOf, findNodes } from '../fleet/facts.js';
import { writeOffNodeRow } from '../fleet/report-rows.js';
import { refuseByPhase } from '../phase/phase.js';
import { refuseOtherRuntime, type RuntimeHead, shareRuntime } from '../phase/facts.js';
import { deriveAgain } from '../volume-handoff/steps.js';
import { requiredEntryExists } from '../volume-handoff/facts.js';
import { findWriteOff } from '../write-off/facts.js';
import { insertWriteOff } from '../write-off/rows.js';
import { decideWriteOff, writeOffId } from '../write-off/write-off.js';

type WriteOffMethod = 'writeOffNode' | 'writeOffVolume';
type WriteOffInput = MethodRequest<WriteOffMethod>;

export function writeOffNode(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'writeOffNode'>,
): Promise<MethodResponse<'writeOffNode'> | Refused> {
  return writeOff(deps, actor, 'writeOffNode', input, { kind: 'node', nodeId: input.nodeId });
}

export function writeOffVolume(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'writeOffVolume'>,
): Promise<MethodResponse<'writeOffVolume'> | Refused> {
  const { nodeId, serviceId, mountIdentityDigest } = input;
  return writeOff(deps, actor, 'writeOffVolume', input, { kind: 'volume', nodeId, serviceId, mountIdentityDigest });
}

interface Locked {
  readonly cluster: Cluster;
  readonly runtime: RuntimeHead;
}

function writeOff<N extends WriteOffMethod>(
  deps: Deps,
  actor: AdministratorActor,
  method: N,
  input: MethodRequest<N> & WriteOffInput,
  subject: TWriteOffSubject,
): Promise<MethodResponse<N> | Refused> {
  const { clusterId } = input;
  return mutate<N, Locked>(deps, actor, input, {
    method,
    clusterId,
    lock: async (tx): Promise<Locked | Refused> => {
      const [cluster, runtime] = await Promise.all([
        clusterOf(tx, actor.organizationId, clusterId),
        shareRuntime(tx, clusterId),
      ]);
      return isRefused(cluster) ? cluster : { cluster, runtime: present(runtime) };
    },
    apply: async (tx, { cluster, runtime }) => {
      const stale =
        refuseOtherRuntime(cluster.clusterLife, runtime, input.runtime) ?? refuseByPhase(runtime.phase, 'write-off');
      if (stale !== null) return stale;
      const unknown = await refuseUnknown(tx, cluster, subject);
      if (unknown !== null) return unknown;
      const decided = await recordWriteOff(tx, cluster, actor, input, subject);
      if (isRefused(decided)) return decided;
      if (decided.state === 'confirmed') {
        if (subject.kind === 'node') await writeOffNodeRow(tx, clusterId, subject.nodeId);
        await deriveAgain(tx, cluster, { nodes: new Set([subject.nodeId]), cluster: true, always: false });
      }
      return { result: { writeOff: decided } } as never;
    },
    isCurrent: async (tx, recorded) => {
      const { writeOff: written } = recorded as unknown as { writeOff: MethodResponse<N>['writeOff'] };
      const newest = await findWriteOff(tx, clusterId, written.id);
      return newest !== undefined && sameReference(referenceOf(newest), referenceOf(written));
    },
  });
}

async function recordWriteOff(
  tx: Tx,
  { clusterId, clusterLife }: Cluster,
  { principalId }: AdministratorActor,
  { proposal, reason, verified }: WriteOffInput,
  subject: TWriteOffSubject,
): Promise<IFleetCutoverWriteOff | Refused> {
  const id = writeOffId(clusterLife, subject);
  const request = { clusterId, clusterLife, subject, proposal, reason, verified, principalId };
  const decided = decideWriteOff(await findWriteOff(tx, clusterId, id), request);
  if (isRefused(decided) || (await insertWriteOff(tx, clusterLife, decided)) === 1) return decided;
  // Another administrator was faster; what is written now refuses.
  const refused = decideWriteOff(await findWriteOff(tx, clusterId, id), request);
  if (!isRefused(refused)) throw new Error('a write-off is neither there nor can be written');
  return refused;
}

async function refuseUnknown(tx: Tx, cluster: Cluster, subject: TWriteOffSubject): Promise<Refused | null> {
  const [node] = await findNodes(tx, cluster.clusterId, [subject.nodeId]);
  if (node === undefined) return refuse('node-unknown', { mutationOutcome: 'not-applied' });
  if (subject.kind === 'node') return null;
  const known = await requiredEntryExists(
    tx,
    cluster.clusterId,
    subject.nodeId,
    handoffId(cluster.clusterLife, subject),
  );
  return known ? null : refuse('record-unknown', { mutationOutcome: 'not-applied' });
}
