/**
 * What a statement may still change while the cluster switches: pure.
 *
 * 1. Only strays are stated: services that are new in the inventory, classes of mounts without a prepared handoff,
 *    releases of entries without one, and confirmations. Everything that was stated stays word for word.
 */
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { IProblemEntry } from '../../contract/problems.js';
import {
  type IFleetCutoverScope,
  type IFleetCutoverScopeStatement,
  normalizeScopeStatement,
} from '../../contract/scope.js';

/** What is prepared, by owner. */
export interface PreparedMounts {
  /** `serviceId NUL target` of every prepared handoff's mount. */
  readonly targets: ReadonlySet<string>;
  /** `nodeId NUL serviceId NUL mountIdentityDigest` of every prepared handoff. */
  readonly keys: ReadonlySet<string>;
}

export function judgeStrays(
  before: IFleetCutoverScope,
  statement: IFleetCutoverScopeStatement,
  prepared: PreparedMounts,
): IProblemEntry[] {
  const entries: IProblemEntry[] = [];
  const refuse = (list: string, index: number, detail: string) =>
    entries.push({ list, index, code: 'strays-only', detail });
  const after = normalizeScopeStatement(statement);
  const known = new Map(before.services.map((service) => [service.swarmServiceId, service]));
  statement.services.forEach((service, index) => {
    const old = known.get(service.swarmServiceId);
    known.delete(service.swarmServiceId);
    if (old === undefined) return;
    const { mounts: oldMounts, ...oldFacts } = old;
    const { mounts, ...facts } = service;
    if (canonicalizeStrictJson(oldFacts) !== canonicalizeStrictJson(facts))
      refuse('services', index, 'a class cannot change any more');
    const now = new Map(mounts.map((mount) => [mount.target, mount]));
    for (const mount of oldMounts) {
      const stated = now.get(mount.target);
      now.delete(mount.target);
      if (stated === undefined || canonicalizeStrictJson(stated) !== canonicalizeStrictJson(mount)) {
        refuse('services', index, `the class of ${mount.target} cannot change any more`);
      }
    }
    for (const target of now.keys()) {
      if (prepared.targets.has(`${service.serviceId}\0${target}`))
        refuse('services', index, `${target} is prepared and no stray`);
    }
  });
  for (const id of known.keys()) refuse('services', statement.services.length, `${id} must stay stated`);
  for (const list of ['overlapOwners', 'releasedAnonymousVolumes'] as const) {
    if (canonicalizeStrictJson(before[list]) !== canonicalizeStrictJson(after[list]))
      refuse(list, 0, 'cannot change any more');
  }
  statement.releasedEntries.forEach((entry, index) => {
    const key = `${entry.nodeId}\0${entry.serviceId}\0${entry.mountIdentityDigest}`;
    if (prepared.keys.has(key)) refuse('releasedEntries', index, 'it is prepared and no stray');
  });
  for (const list of ['overlapConfirmations', 'dormantVolumes', 'releasedEntries'] as const) {
    const kept = new Set(after[list].map((each) => canonicalizeStrictJson(each)));
    if (before[list].some((each) => !kept.has(canonicalizeStrictJson(each))))
      refuse(list, 0, 'what was confirmed must stay');
  }
  if (canonicalizeStrictJson(before.coreflow) !== canonicalizeStrictJson(after.coreflow))
    refuse('coreflow', 0, 'cannot change any more');
  return entries;
}
