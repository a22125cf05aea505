/** From a person's file to what is sent, or to everything that keeps it from being sent, line by line: pure. */
import type { IFleetCutoverScopeStatement, TMountClass, TServiceClass } from '../../contract/scope.js';
import type { ParsedScopeFile } from './parse-scope-file.js';
import type { ScopeFileError } from './scope-file-refused.js';
import { answerLists, type FileAnswer, type FileService, isBlank } from './scope-file.js';
import { coreflowOf } from './scope-lines.js';

/** What the file can be compared with once the service is asked. */
export interface KnownServices {
  /** Names by swarm service id, of the inventory that the file pins. */
  readonly inventory: ReadonlyMap<string, string>;
  /** Swarm services that the expected scope states. */
  readonly scope: ReadonlySet<string>;
}

const unconfirmed = 'is not confirmed: read it, correct it and set confirmed to true, or delete the entry';

/** Empty where every statement is whole and confirmed. */
export function openStatements({ file, lineOf }: ParsedScopeFile): ScopeFileError[] {
  const errors: ScopeFileError[] = [];
  const at = (pointer: string, message: string) => errors.push({ line: lineOf(pointer), message });
  if (file.coreflow.state === 'none' && isBlank(file.coreflow.reason)) at('/coreflow', 'coreflow: none needs a reason');
  if (file.coreflow.confirmed === false) at('/coreflow', `coreflow ${unconfirmed}`);
  const seen = new Set<string>();
  file.services.forEach((service, index) => {
    const pointer = `/services/${index}`;
    const name = service.name ?? service.swarmServiceId;
    if (seen.has(service.swarmServiceId)) at(pointer, `${service.swarmServiceId} is stated twice`);
    seen.add(service.swarmServiceId);
    openService(service, name).forEach(([key, message]) => at(`${pointer}/${key}`, `${name} ${message}`));
    const targets = new Set<string>();
    service.mounts?.forEach((mount, position) => {
      const where = `${pointer}/mounts/${position}`;
      const what = `${name}, mount ${mount.target},`;
      if (targets.has(mount.target)) at(where, `${what} is stated twice`);
      targets.add(mount.target);
      if (!mount.confirmed) at(`${where}/confirmed`, `${what} ${unconfirmed}`);
      if (mount.class === null) at(`${where}/class`, `${what} has no class`);
      if (isBlank(mount.reason)) at(`${where}/reason`, `${what} has no reason`);
    });
  });
  for (const list of answerLists) {
    (file[list] as readonly FileAnswer[]).forEach((answer, index) => {
      const where = `/${list}/${index}`;
      if (!answer.confirmed) at(`${where}/confirmed`, `${list} ${unconfirmed}`);
      if (isBlank(answer.reason)) at(`${where}/reason`, `${list} has no reason`);
    });
  }
  return errors.sort((left, right) => left.line - right.line);
}

function openService(service: FileService, name: string): [string, string][] {
  const errors: [string, string][] = [];
  const { class: serviceClass, serviceId = null, reason, confirmed } = service;
  if (!confirmed) errors.push(['confirmed', unconfirmed]);
  if (serviceClass === null) errors.push(['class', 'has no class']);
  const owned = serviceClass === 'application' || serviceClass === 'ingress';
  if (owned && serviceId === null) errors.push(['serviceId', `has no owner: name the serviceId of ${name}`]);
  if (serviceClass !== null && !owned && serviceId !== null)
    errors.push(['serviceId', `is ${serviceClass} and has no owner: delete the serviceId or set it to null`]);
  if (serviceClass === 'excluded' && isBlank(reason)) errors.push(['reason', 'is excluded without a reason']);
  return errors;
}

/** Services that neither the pinned inventory nor the expected scope knows, or knows by another name. */
export function unknownServices({ file, lineOf }: ParsedScopeFile, known: KnownServices): ScopeFileError[] {
  return file.services.flatMap(({ swarmServiceId, name }, index) => {
    const observed = known.inventory.get(swarmServiceId);
    const line = (key: string) => lineOf(`/services/${index}/${key}`);
    if (observed === undefined && !known.scope.has(swarmServiceId)) {
      return [
        {
          line: line('swarmServiceId'),
          message: `${swarmServiceId} is no swarm service of the inventory or the scope`,
        },
      ];
    }
    if (observed !== undefined && name !== undefined && name !== observed) {
      return [{ line: line('name'), message: `${swarmServiceId} is called ${observed}, not ${name}` }];
    }
    return [];
  });
}

/** Of a file without open statements, in the file's own order: a refusal's indexes lead back to its lines. */
export function statementOf({ file }: ParsedScopeFile): IFleetCutoverScopeStatement {
  const answer = <T extends FileAnswer>({ confirmed: _confirmed, reason, ...subject }: T) => ({
    ...subject,
    reason: reason as string,
  });
  return {
    services: file.services.map((service) => ({
      swarmServiceId: service.swarmServiceId,
      class: service.class as TServiceClass,
      serviceId: service.serviceId ?? null,
      reason: isBlank(service.reason) ? null : (service.reason as string),
      mounts: (service.mounts ?? []).map(({ target, class: mountClass, reason }) => ({
        target,
        class: mountClass as TMountClass,
        reason: reason as string,
      })),
    })),
    coreflow: coreflowOf(file),
    overlapOwners: file.overlapOwners.map(answer),
    overlapConfirmations: file.overlapConfirmations.map(answer),
    dormantVolumes: file.dormantVolumes.map(answer),
    releasedEntries: file.releasedEntries.map(answer),
    releasedAnonymousVolumes: file.releasedAnonymousVolumes.map(answer),
  };
}
