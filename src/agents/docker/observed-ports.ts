/**
 * Open ports of a node, as far as its engine knows them.
 *
 * Not visible here: ports of containers in the host's network namespace, and on workers the ports of the routing mesh.
 * Those are open on every node of the swarm, but only a manager's engine tells them.
 */
import type { IObservedPort } from '../../contract/observation.js';
import { compareText } from '../../contract/schema.js';
import type { IEngineContainer, IEngineService, IEngineServicePort } from './answers.js';
import { CensusFailure } from './census-failure.js';
import { swarmServiceIdOf } from './swarm-labels.js';

type Protocol = IObservedPort['protocol'];

export function protocolOf(text: string): Protocol {
  if (text === 'tcp' || text === 'udp' || text === 'sctp') return text;
  throw new CensusFailure('engine-error', 'a port has an unknown protocol');
}

/** The ports that a service really has, which the engine allocated, or those that it asks for until then. */
export function servicePorts(service: IEngineService): readonly IEngineServicePort[] {
  const allocated = service.Endpoint?.Ports ?? [];
  return allocated.length > 0 ? allocated : (service.Spec.EndpointSpec?.Ports ?? []);
}

/** Ports that a container holds on its node. A stopped container holds none, whatever it would publish. */
export function containerPorts(container: IEngineContainer): IObservedPort[] {
  if (container.State.Status !== 'running' && container.State.Status !== 'paused') return [];
  const swarmServiceId = swarmServiceIdOf(container);
  const owner: IObservedPort['owner'] =
    swarmServiceId === null
      ? { kind: 'container', containerId: container.Id }
      : { kind: 'swarm-service', swarmServiceId };
  return Object.entries(container.NetworkSettings.Ports ?? {}).flatMap(([exposed, bindings]) => {
    const protocol = exposed.split('/')[1] ?? '';
    return (bindings ?? []).map(({ HostPort }) => ({
      protocol: protocolOf(protocol),
      port: hostPort(HostPort),
      owner,
    }));
  });
}

function hostPort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535) throw new CensusFailure('engine-error', 'a container publishes no valid host port');
  return port;
}

/** Ports that the routing mesh holds on every node of the swarm for a service. */
export function routingMeshPorts(service: IEngineService): IObservedPort[] {
  return (service.Endpoint?.Ports ?? []).flatMap(({ Protocol, PublishedPort, PublishMode }) =>
    PublishMode === 'host' || PublishedPort === undefined || PublishedPort === 0
      ? []
      : [
          {
            protocol: protocolOf(Protocol),
            port: PublishedPort,
            owner: { kind: 'swarm-service', swarmServiceId: service.ID },
          },
        ],
  );
}

/**
 * Each port once per owner, by protocol, number and owner. One that somebody found open without knowing whose it is
 * (`unknown`) is left out where its owner is known.
 */
export function distinctPorts(ports: readonly IObservedPort[]): IObservedPort[] {
  const owned = new Set(ports.filter(({ owner }) => owner.kind !== 'unknown').map(socketOf));
  const byKey = new Map(
    ports
      .filter((port) => port.owner.kind !== 'unknown' || !owned.has(socketOf(port)))
      .map((port) => [`${socketOf(port)} ${ownerKey(port.owner)}`, port]),
  );
  return [...byKey].sort(([left], [right]) => compareText(left, right)).map(([, port]) => port);
}

/** The number is padded, so that the text's order is the number's. */
function socketOf({ protocol, port }: IObservedPort): string {
  return `${protocol} ${String(port).padStart(5, '0')}`;
}

function ownerKey(owner: IObservedPort['owner']): string {
  switch (owner.kind) {
    case 'swarm-service':
      return `${owner.kind} ${owner.swarmServiceId}`;
    case 'container':
      return `${owner.kind} ${owner.containerId}`;
    case 'pallet-service':
      return `${owner.kind} ${owner.serviceId}`;
    case 'unknown':
      return owner.kind;
  }
}
