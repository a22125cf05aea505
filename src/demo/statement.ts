/** From names to the scope statement that the service takes: pure. */
import { keeperTarget } from '../agents/docker/overlay-services.js';
import { fleetCutoverContract } from '../contract/limits.js';
import { isAnonymousVolumeName } from '../contract/mount.js';
import type { IFleetCutoverCompleteManagerSnapshot } from '../contract/observation.js';
import type { IFleetCutoverScopeStatement } from '../contract/scope.js';
import type { IClassification } from './capture.js';

/** What the demonstration's agents add to a captured swarm. */
export const addedServiceNames = { coreflow: 'coreflow', coretraffic: 'coretraffic' } as const;

/** The people of the capture know the added services: which one relays, and which one is the ingress. */
export function withAddedServices(classification: IClassification | null): IClassification | null {
  if (classification === null) return null;
  return {
    ...classification,
    coreflow: { state: 'classified' },
    services: {
      ...classification.services,
      [addedServiceNames.coreflow]: { class: 'coreflow' },
      [addedServiceNames.coretraffic]: { class: 'ingress' },
    },
  };
}

/** A container outside Swarm that refers to anonymous volumes of one node while their services are stopped. */
export interface Keeper {
  readonly node: string;
  readonly name: string;
  readonly volumes: readonly string[];
}

/** Their mounts overlap the entries' on purpose, which has to be confirmed. */
export function withKeepers(
  statement: IFleetCutoverScopeStatement,
  keepers: readonly Keeper[],
): IFleetCutoverScopeStatement {
  const confirmations = keepers.flatMap(({ node, name, volumes }) =>
    volumes.map((volume) => ({
      nodeId: node,
      mounter: { kind: 'container' as const, name },
      target: keeperTarget(volume),
      reason: 'it keeps the anonymous volume over the stop, never starts, and is removed before the last phase',
    })),
  );
  return { ...statement, overlapConfirmations: [...statement.overlapConfirmations, ...confirmations] };
}

/** One keeper for each 32 anonymous volumes of a node, as many as a container's mounts are reported. */
export function keepersOf(
  entries: readonly { readonly nodeId: string; readonly volumeName: string | null }[],
): Keeper[] {
  const byNode = new Map<string, Set<string>>();
  for (const { nodeId, volumeName } of entries) {
    if (volumeName === null || !isAnonymousVolumeName(volumeName)) continue;
    byNode.set(nodeId, (byNode.get(nodeId) ?? new Set()).add(volumeName));
  }
  const most = fleetCutoverContract.maximumMountsPerOwner;
  return [...byNode].flatMap(([node, names]) => {
    const volumes = [...names].sort();
    return Array.from({ length: Math.ceil(volumes.length / most) }, (_, index) => ({
      node,
      name: `keeper-${node}-${index + 1}`,
      volumes: volumes.slice(index * most, (index + 1) * most),
    }));
  });
}

export function scopeStatement(
  snapshot: IFleetCutoverCompleteManagerSnapshot,
  classification: IClassification | null,
  /** Service ids by the swarm services' names. */
  owners: ReadonlyMap<string, string>,
): IFleetCutoverScopeStatement {
  const idOf = new Map(snapshot.services.map((service) => [service.name, service.id]));
  const swarmServiceId = (name: string): string => {
    const id = idOf.get(name);
    if (id === undefined) throw new Error(`the classification names service ${name}, which the capture does not have`);
    return id;
  };
  for (const name of Object.keys(classification?.services ?? {})) swarmServiceId(name);
  return {
    services: snapshot.services.map((service) => {
      const stated = classification?.services[service.name];
      const serviceClass = stated?.class ?? 'application';
      const owned = serviceClass === 'application' || serviceClass === 'ingress';
      return {
        swarmServiceId: service.id,
        class: serviceClass,
        serviceId: owned ? (owners.get(service.name) ?? null) : null,
        reason: stated?.reason ?? null,
        mounts: Object.entries(stated?.mounts ?? {}).map(([target, mount]) => ({ target, ...mount })),
      };
    }),
    coreflow: classification?.coreflow ?? { state: 'undetermined' },
    overlapOwners: [],
    overlapConfirmations: (classification?.overlapConfirmations ?? []).map(
      ({ node, service, container, target, reason }) => ({
        nodeId: node,
        mounter:
          service === undefined
            ? { kind: 'container' as const, name: container ?? '' }
            : { kind: 'service' as const, swarmServiceId: swarmServiceId(service) },
        target,
        reason,
      }),
    ),
    dormantVolumes: (classification?.dormantVolumes ?? []).map(({ node, volume, reason }) => ({
      nodeId: node,
      volumeName: volume,
      reason,
    })),
    releasedEntries: [],
    releasedAnonymousVolumes: [],
  };
}
