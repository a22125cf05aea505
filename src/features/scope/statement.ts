/**
 * What an administrator may state about an admitted inventory.
 *
 * 1. Every swarm service of the inventory gets one class; what is left out is `unclassified` and the scope incomplete.
 * 2. `application` and `ingress` name their owner, a live service of the organization, one per swarm service.
 * 3. `excluded` gives a reason. Every class of a mount, confirmation and release gives one.
 * 4. A service that left the inventory may be stated still, and must be while entries of it are required: they leave
 *    only when the statement names them or the service with a reason. A swarm service that was made again under another
 *    id carries them over by its owner.
 * 5. `coreflow: none` and a service of class `coreflow` exclude each other; `classified` needs exactly one.
 */
import type { IProblemEntry, TBatchEntryCode } from '../../contract/problems.js';
import type { IFleetCutoverScope, IFleetCutoverScopeStatement } from '../../contract/scope.js';
import { mounterName } from '../../contract/scope.js';

export interface StatementFacts {
  /** Swarm services of the inventory that is to be admitted. */
  readonly inventory: ReadonlySet<string>;
  readonly predecessor: IFleetCutoverScope | null;
  /** State of the organization's services that the statement names. */
  readonly services: ReadonlyMap<string, 'live' | 'retired'>;
  /** Nodes of the cluster that the statement names. */
  readonly nodes: ReadonlySet<string>;
  /** Swarm services of the predecessor of which entries are required that the statement does not release by name. */
  readonly servicesWithEntries: ReadonlySet<string>;
}

export interface StatementJudgement {
  readonly entries: readonly IProblemEntry[];
  readonly unclassified: readonly string[];
  readonly state: 'incomplete' | 'complete';
}

export function judgeStatement(statement: IFleetCutoverScopeStatement, facts: StatementFacts): StatementJudgement {
  const entries: IProblemEntry[] = [];
  const refuse = (list: string, index: number, code: TBatchEntryCode, detail?: string) =>
    entries.push(detail === undefined ? { list, index, code } : { list, index, code, detail });

  const stated = new Set<string>();
  const owners = new Set<string>();
  const before = new Set(facts.predecessor?.services.map((service) => service.swarmServiceId));
  statement.services.forEach((service, index) => {
    const at = (code: TBatchEntryCode, detail?: string) => refuse('services', index, code, detail);
    if (stated.has(service.swarmServiceId)) at('entry-duplicate');
    stated.add(service.swarmServiceId);
    if (!facts.inventory.has(service.swarmServiceId) && !before.has(service.swarmServiceId))
      at('service-not-in-inventory');
    const owned = service.class === 'application' || service.class === 'ingress';
    if (!owned && service.serviceId !== null) at('service-id-refused');
    if (owned && service.serviceId === null) at('service-id-required');
    if (owned && service.serviceId !== null) {
      const state = facts.services.get(service.serviceId);
      if (state === undefined) at('service-unknown');
      else if (state === 'retired') at('service-retired');
      if (owners.has(service.serviceId)) at('service-owned-twice');
      owners.add(service.serviceId);
    }
    if (service.class === 'excluded' && service.reason === null) at('reason-required');
    if (new Set(service.mounts.map((mount) => mount.target)).size !== service.mounts.length) at('mount-duplicate');
    if (service.class === 'coreflow' && statement.coreflow.state === 'none') at('coreflow-mismatch');
  });
  const coreflows = statement.services.filter((service) => service.class === 'coreflow');
  if (statement.coreflow.state === 'classified' && coreflows.length !== 1) {
    refuse('coreflow', 0, 'coreflow-mismatch', `${coreflows.length} services are classed coreflow`);
  }
  if (statement.coreflow.state === 'undetermined' && coreflows.length > 0) refuse('coreflow', 0, 'coreflow-mismatch');

  const applicationOwners = new Set(
    statement.services.flatMap((service) => (service.class === 'application' ? (service.serviceId ?? []) : [])),
  );
  for (const before of facts.predecessor?.services ?? []) {
    if (before.serviceId === null || !facts.servicesWithEntries.has(before.swarmServiceId)) continue;
    const index = statement.services.findIndex((service) => service.swarmServiceId === before.swarmServiceId);
    const isExcluded = statement.services[index]?.class === 'excluded';
    if (applicationOwners.has(before.serviceId) || isExcluded) continue;
    refuse(
      'services',
      index === -1 ? statement.services.length : index,
      'service-has-entries',
      `${before.serviceId} has required entries: keep it, exclude it with a reason, or release them by name`,
    );
  }

  const unique = <T extends object>(list: string, items: readonly T[], identity: (item: T) => string) => {
    const seen = new Set<string>();
    items.forEach((item, index) => {
      if ('nodeId' in item && !facts.nodes.has(item.nodeId as string)) refuse(list, index, 'node-unknown');
      const key = identity(item);
      if (seen.has(key)) refuse(list, index, 'entry-duplicate');
      seen.add(key);
    });
  };
  const entryKey = (entry: { nodeId: string; serviceId: string; mountIdentityDigest: string }) =>
    `${entry.nodeId}\0${entry.serviceId}\0${entry.mountIdentityDigest}`;
  unique('overlapOwners', statement.overlapOwners, entryKey);
  unique('releasedEntries', statement.releasedEntries, entryKey);
  unique('dormantVolumes', statement.dormantVolumes, (each) => `${each.nodeId}\0${each.volumeName}`);
  unique('releasedAnonymousVolumes', statement.releasedAnonymousVolumes, (each) => each.serviceId);
  unique(
    'overlapConfirmations',
    statement.overlapConfirmations,
    (each) => `${each.nodeId}\0${each.mounter.kind}\0${mounterName(each.mounter)}\0${each.target}`,
  );

  const unclassified = [...facts.inventory].filter((id) => !stated.has(id)).sort();
  const complete = unclassified.length === 0 && statement.coreflow.state !== 'undetermined';
  return { entries, unclassified, state: complete ? 'complete' : 'incomplete' };
}
