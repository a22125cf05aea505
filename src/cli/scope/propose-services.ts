/**
 * What a swarm service is likely to be, from what the manager snapshot shows of it: pure, and never more than a proposal.
 *
 *  1. The relay is a person's to name: a service that is called like it stays open.
 *  2. An ingress is told by its name or role; by its ports alone nothing is.
 *  3. What keeps data on its nodes is an application, and so is what shows no sign of anything else: an image may declare
 *     volumes that no spec names, and an application without any has no entry.
 *  4. An agent of the host keeps no data and looks at the host's: whether it moves at all stays open.
 *  5. Mounts are classed where the snapshot itself shows that the storage is not the node's; where a person would have to
 *     know better, the class is proposed without a reason, and none is accepted without one.
 */
import { networkFilesystems } from '../../contract/mount.js';
import type { IObservedSpecMount, IObservedSwarmService } from '../../contract/observation.js';
import type { TMountClass, TServiceClass } from '../../contract/scope.js';

export interface ProposedMount {
  readonly target: string;
  readonly class: TMountClass | null;
  readonly reason: string | null;
  readonly note: string;
}

export interface ProposedService {
  readonly class: TServiceClass | null;
  readonly mounts: readonly ProposedMount[];
  /** Why, in words. */
  readonly note: string;
}

/** Volume names that some service of the swarm writes, as its spec has them. */
export function writtenVolumes(services: readonly IObservedSwarmService[]): Set<string> {
  return new Set(
    services.flatMap((service) =>
      service.mounts.flatMap(({ type, source, readOnly }) =>
        type === 'volume' && source !== null && !readOnly ? [source] : [],
      ),
    ),
  );
}

export function proposeService(service: IObservedSwarmService, written: ReadonlySet<string>): ProposedService {
  const mounts = service.mounts.flatMap((mount) => proposeMount(mount, written) ?? []);
  return { ...proposeClass(service, mounts), mounts };
}

const relayNames = /(?:^|[_./-])coreflow(?:$|[_.:@/-])/i;
const legacyIngressNames = /(?:^|[_./-])coretraffic(?:$|[_.:@/-])/i;
const ingressNames =
  /(?:^|[_./-])(?:ingress|traefik|nginx|haproxy|caddy|envoy|edge|gateway|router|proxy|reverse-proxy|lb|load-?balancer)(?:$|[_.:@/-])/i;
const webPorts: ReadonlySet<number> = new Set([80, 443]);

function proposeClass(
  service: IObservedSwarmService,
  mounts: readonly ProposedMount[],
): Pick<ProposedService, 'class' | 'note'> {
  const names = [service.name, imageName(service.image)];
  const called = (pattern: RegExp) => names.some((name) => pattern.test(name));
  const role = service.labels.find(({ key }) => key === 'serve.zone.role')?.value ?? null;
  const data = keptData(service, mounts);
  const web = service.ports.flatMap(({ publishedPort }) =>
    publishedPort !== null && webPorts.has(publishedPort) ? [publishedPort] : [],
  );
  if (role === 'coreflow' || called(relayNames)) {
    return {
      class: null,
      note: 'looks like the legacy relay. Only you can say so: class it coreflow, and set coreflow above to { state: classified }',
    };
  }
  const legacy = role === 'coretraffic' || role === 'ingress' || called(legacyIngressNames);
  if (legacy || (web.length > 0 && called(ingressNames))) {
    const why = legacy
      ? 'is the legacy ingress by its name or role'
      : `publishes ${web.join(' and ')} and is named like an ingress`;
    if (data.length === 0) return { class: 'ingress', note: why };
    return {
      class: null,
      note: `${why}, but keeps ${data.join(', ')}: an ingress must own no data. Class those mounts, or call it an application`,
    };
  }
  if (data.length > 0) {
    const ports = web.length === 0 ? '' : `; it publishes ${web.join(' and ')}: is it the ingress?`;
    return { class: 'application', note: `keeps data on its nodes: ${data.join(', ')}${ports}` };
  }
  if (web.length > 0) {
    return { class: null, note: `publishes ${web.join(' and ')} and keeps no data: the ingress, or an application?` };
  }
  if (service.mode === 'global' && service.mounts.some(({ type, source }) => type === 'bind' && isSystemPath(source))) {
    return {
      class: null,
      note: 'looks like an agent of the host (it runs on every node and looks at the host’s own directories): application if it moves, excluded with a reason if it stays',
    };
  }
  return {
    class: 'application',
    note:
      mounts.length > 0
        ? 'keeps nothing on its nodes that its spec names, besides what is classed below'
        : 'names no data in its spec; volumes that its image declares are found on the nodes',
  };
}

/** `registry/team/name:tag@digest` → `team/name`. */
function imageName(image: string | null): string {
  const path = (image ?? '').split('@')[0] ?? '';
  const parts = path.split('/');
  if (parts.length > 1 && /[.:]/.test(parts[0] ?? '')) parts.shift();
  return parts.join('/').replace(/:[^:/]*$/, '');
}

/** Mounts that will make entries unless they are classed: where the data is, for people. */
function keptData({ mounts }: IObservedSwarmService, proposed: readonly ProposedMount[]): string[] {
  const classed = new Set(proposed.map(({ target }) => target));
  return mounts.flatMap(({ type, source, target, readOnly }) => {
    if (readOnly || classed.has(target)) return [];
    if (type === 'volume')
      return [source === null ? `an anonymous volume at ${target}` : `volume ${source} at ${target}`];
    return type === 'bind' ? [`${source ?? 'a directory'} at ${target}`] : [];
  });
}

function proposeMount(mount: IObservedSpecMount, written: ReadonlySet<string>): ProposedMount | null {
  const { type, source, target, readOnly, driver, options } = mount;
  const propose = (mountClass: TMountClass | null, reason: string | null, note: string): ProposedMount => ({
    target,
    class: mountClass,
    reason,
    note,
  });
  const optionType = options?.type ?? null;
  if (type === 'cluster') return propose('external', 'a cluster volume, no directory of the node', 'a cluster volume');
  if (type === 'volume' && driver !== null && driver !== 'local') {
    return propose('external', `driver ${driver}: no directory of the node`, `its driver is ${driver}`);
  }
  if (type === 'volume' && optionType === 'tmpfs') {
    return propose('ephemeral', 'tmpfs behind a volume name, lost at every restart', 'the volume is a tmpfs');
  }
  if (type === 'volume' && optionType !== null && networkFilesystems.has(optionType)) {
    return propose('external', `${optionType}: on another machine`, `the volume is ${optionType}`);
  }
  if (type === 'bind' && !readOnly && isSystemPath(source)) {
    return propose('host-path', null, `${source ?? ''} is the host’s own: used, or owned?`);
  }
  if (type === 'volume' && readOnly && source !== null && !written.has(source)) {
    return propose('shared-read-only', null, `no service writes volume ${source}: who owns what is in it?`);
  }
  return null;
}

const systemPaths = [
  '/bin',
  '/boot',
  '/dev',
  '/etc',
  '/lib',
  '/lib64',
  '/proc',
  '/run',
  '/sbin',
  '/sys',
  '/usr',
  '/var/lib/docker',
  '/var/lib/containerd',
  '/var/log',
  '/var/run',
];

function isSystemPath(source: string | null): boolean {
  if (source === null) return false;
  const path = source.length > 1 ? source.replace(/\/+$/, '') : source;
  return (
    path === '/' ||
    path === '' ||
    path === '/var' ||
    systemPaths.some((each) => path === each || path.startsWith(`${each}/`))
  );
}
