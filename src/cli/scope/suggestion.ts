/**
 * The file that is suggested: what a person has said already, what the scope says, and a proposal for everything else. Pure.
 *
 *  1. What the current scope states is taken over as it is, confirmed.
 *  2. What stands in the person's own file stays as it stands there, confirmed or not.
 *  3. Everything else is a proposal: unconfirmed, or open where nothing can be told.
 *  4. What is neither in the inventory nor in the scope any more is left out, and said to be.
 */
import type { IFleetCutoverBlocker } from '../../contract/derivation.js';
import type { IObservedSwarmService } from '../../contract/observation.js';
import { compareText, type Reference, sameReference } from '../../contract/schema.js';
import type { IFleetCutoverScope, IFleetCutoverScopeService } from '../../contract/scope.js';
import { proposeAnswers } from './propose-answers.js';
import { type ProposedMount, proposeService, writtenVolumes } from './propose-services.js';
import {
  answerLists,
  answerSubject,
  type FileAnswer,
  type FileMount,
  type FileService,
  type IScopeFile,
  scopeFileFormat,
} from './scope-file.js';

export interface SuggestionFacts {
  readonly clusterId: string;
  readonly runtime: Reference;
  readonly inventory: Reference;
  /** Of the inventory. */
  readonly services: readonly IObservedSwarmService[];
  readonly scope: IFleetCutoverScope | null;
  readonly blockers: readonly IFleetCutoverBlocker[];
  /** Live services of the organization by name. */
  readonly owners: ReadonlyMap<string, string>;
  /** The person's earlier file. */
  readonly from: IScopeFile | null;
}

export type TSection = 'open' | 'check' | 'plain' | 'stated';

export interface Suggestion {
  readonly file: IScopeFile;
  /** Explanations by the part of the file that they are about. */
  readonly notes: ReadonlyMap<object, string>;
  /** Which section each service stands in. */
  readonly sections: ReadonlyMap<FileService, TSection>;
  /** Blockers that no statement of the scope removes. */
  readonly unanswerable: readonly IFleetCutoverBlocker[];
  /** What of the person's file was left out, and why. */
  readonly dropped: readonly string[];
}

const sectionOrder: readonly TSection[] = ['open', 'check', 'plain', 'stated'];

export function suggest(facts: SuggestionFacts): Suggestion {
  return new Suggesting(facts).run();
}

class Suggesting {
  readonly #facts: SuggestionFacts;
  readonly #notes = new Map<object, string>();
  readonly #dropped: string[] = [];
  readonly #written: ReadonlySet<string>;
  readonly #stated: ReadonlyMap<string, IFleetCutoverScopeService>;
  readonly #fromServices: ReadonlyMap<string, FileService>;
  /** The file was made for the current scope: what it leaves out of it was left out by the person. */
  readonly #fromIsAhead: boolean;
  readonly #offered;

  constructor(facts: SuggestionFacts) {
    this.#facts = facts;
    this.#written = writtenVolumes(facts.services);
    this.#stated = new Map(facts.scope?.services.map((each) => [each.swarmServiceId, each]));
    this.#fromServices = new Map(facts.from?.services.map((each) => [each.swarmServiceId, each]));
    this.#fromIsAhead = facts.from !== null && sameReference(facts.from.expectedScope, facts.scope);
    this.#offered = proposeAnswers(facts.blockers);
  }

  run(): Suggestion {
    const { clusterId, runtime, inventory, scope, from } = this.#facts;
    const services = [...this.#inventoryServices(), ...this.#goneServices()];
    this.#dropUnknownServices();
    const sections = new Map(services.map((service) => [service, this.#sectionOf(service)]));
    services.sort(
      (left, right) =>
        sectionOrder.indexOf(sections.get(left)!) - sectionOrder.indexOf(sections.get(right)!) ||
        compareText(left.name ?? left.swarmServiceId, right.name ?? right.swarmServiceId),
    );
    const file: IScopeFile = {
      format: scopeFileFormat,
      clusterId,
      runtime,
      inventory,
      expectedScope: scope === null ? null : { id: scope.id, generation: scope.generation, digest: scope.digest },
      coreflow:
        from !== null && from.coreflow.state !== 'undetermined'
          ? from.coreflow
          : (scope?.coreflow ?? { state: 'undetermined' }),
      services,
      overlapOwners: [],
      overlapConfirmations: [],
      dormantVolumes: [],
      releasedEntries: [],
      releasedAnonymousVolumes: [],
    };
    for (const list of answerLists) (file[list] as FileAnswer[]).push(...this.#answers(list));
    const { unanswerable } = this.#offered;
    return { file, notes: this.#notes, sections, unanswerable, dropped: this.#dropped };
  }

  #inventoryServices(): FileService[] {
    return this.#facts.services.map((observed) => {
      const mine = this.#fromServices.get(observed.id);
      const stated = this.#stated.get(observed.id);
      const replaces = stated === undefined ? this.#replacedBy(observed) : undefined;
      const service =
        mine !== undefined && (mine.confirmed || stated === undefined)
          ? this.#completed(mine, observed)
          : stated !== undefined && !(this.#fromIsAhead && mine === undefined)
            ? this.#takenOver(stated, observed.name)
            : this.#proposed(observed, stated ?? replaces);
      return this.#withOfferedMounts(service);
    });
  }

  /** The person's own lines; of an unconfirmed proposal what was open then may be known now. */
  #completed(mine: FileService, observed: IObservedSwarmService): FileService {
    const service = { ...mine, name: observed.name, mounts: [...(mine.mounts ?? [])] };
    this.#notes.set(service, 'as it stands in your file');
    if (mine.confirmed) return service;
    const proposal = proposeService(observed, this.#written);
    const completed = {
      ...service,
      class: mine.class ?? proposal.class,
      serviceId: mine.serviceId ?? this.#ownerOf(mine.class ?? proposal.class, observed.name),
    };
    this.#notes.delete(service);
    this.#notes.set(completed, `${proposal.note} (not confirmed in your file yet)`);
    return completed;
  }

  #takenOver(stated: IFleetCutoverScopeService, name: string | undefined): FileService {
    const service: FileService = {
      ...(name === undefined ? {} : { name }),
      ...stated,
      mounts: stated.mounts.map((mount) => ({ ...mount, confirmed: true })),
      confirmed: true,
    };
    const gone = name === undefined ? '; it is not in the inventory any more' : '';
    this.#notes.set(service, `as the scope states it (generation ${this.#facts.scope?.generation ?? 0})${gone}`);
    return service;
  }

  #proposed(observed: IObservedSwarmService, earlier: IFleetCutoverScopeService | undefined): FileService {
    const proposal = proposeService(observed, this.#written);
    const mounts =
      earlier?.mounts.map((mount): FileMount => ({ ...mount, confirmed: false })) ??
      proposal.mounts.map((mount) => this.#mountOf(mount));
    const serviceClass = earlier?.class ?? proposal.class;
    const service: FileService = {
      name: observed.name,
      swarmServiceId: observed.id,
      class: serviceClass,
      serviceId: earlier?.serviceId ?? this.#ownerOf(serviceClass, observed.name),
      reason: earlier?.reason ?? null,
      mounts,
      confirmed: false,
    };
    const why =
      earlier === undefined
        ? proposal.note
        : earlier.swarmServiceId === observed.id
          ? 'the scope states it, and your file left it out'
          : `made again: it was ${earlier.swarmServiceId}, whose statement and entries it takes over by its owner`;
    const owned = serviceClass === 'application' || serviceClass === 'ingress';
    const ownerless = owned && (service.serviceId ?? null) === null;
    this.#notes.set(
      service,
      ownerless ? `${why}. No service of ours has this name: import it, or name its owner’s serviceId` : why,
    );
    return service;
  }

  #mountOf({ target, class: mountClass, reason, note }: ProposedMount): FileMount {
    const mount: FileMount = { target, class: mountClass, reason, confirmed: false };
    this.#notes.set(mount, note);
    return mount;
  }

  #ownerOf(serviceClass: FileService['class'], name: string): string | null {
    return serviceClass === 'application' || serviceClass === 'ingress' || serviceClass === null
      ? (this.#facts.owners.get(name) ?? null)
      : null;
  }

  /** Mounts that block and that nothing in the file classes yet. */
  #withOfferedMounts(service: FileService): FileService {
    const classed = new Set(service.mounts?.map(({ target }) => target));
    for (const { swarmServiceId, mount } of this.#offered.mounts) {
      if (swarmServiceId !== service.swarmServiceId || classed.has(mount.target)) continue;
      classed.add(mount.target);
      service.mounts?.push(this.#mountOf(mount));
    }
    return service;
  }

  /** A swarm service that left the inventory, whose owner has the name of one that came. */
  #replacedBy(observed: IObservedSwarmService): IFleetCutoverScopeService | undefined {
    const owner = this.#facts.owners.get(observed.name);
    if (owner === undefined) return undefined;
    const present = new Set(this.#facts.services.map(({ id }) => id));
    return this.#facts.scope?.services.find(
      ({ swarmServiceId, serviceId }) => serviceId === owner && !present.has(swarmServiceId),
    );
  }

  /** Entries of theirs may be required still, so that they stay stated; those that were made again are stated once. */
  #goneServices(): FileService[] {
    const present = new Set(this.#facts.services.map(({ id }) => id));
    const replaced = new Set(this.#facts.services.map((observed) => this.#replacedBy(observed)?.swarmServiceId));
    return [...this.#stated.values()]
      .filter(({ swarmServiceId }) => !present.has(swarmServiceId) && !replaced.has(swarmServiceId))
      .filter(({ swarmServiceId }) => !this.#fromIsAhead || this.#fromServices.has(swarmServiceId))
      .map((stated) => {
        const mine = this.#fromServices.get(stated.swarmServiceId);
        if (mine === undefined || !mine.confirmed) return this.#takenOver(stated, undefined);
        const { name: _name, ...service } = mine;
        this.#notes.set(service, 'as it stands in your file; it is not in the inventory any more');
        return service;
      });
  }

  #dropUnknownServices(): void {
    const present = new Set(this.#facts.services.map(({ id }) => id));
    for (const { swarmServiceId, name } of this.#fromServices.values()) {
      if (present.has(swarmServiceId) || this.#stated.has(swarmServiceId)) continue;
      this.#dropped.push(`service ${name ?? swarmServiceId}: it left the inventory, and the scope does not state it`);
    }
  }

  #sectionOf(service: FileService): TSection {
    const mounts = service.mounts ?? [];
    if (service.class === null || mounts.some((mount) => mount.class === null)) return 'open';
    const owned = service.class === 'application' || service.class === 'ingress';
    if (mounts.some((mount) => !mount.confirmed)) return 'check';
    if (service.confirmed) return 'stated';
    return (owned && (service.serviceId ?? null) === null) || service.class !== 'application' ? 'check' : 'plain';
  }

  #answers(list: (typeof answerLists)[number]): FileAnswer[] {
    const { from, scope } = this.#facts;
    const mine = (from?.[list] ?? []) as readonly FileAnswer[];
    const known = new Map(mine.map((answer) => [answerSubject(answer), { ...answer } as FileAnswer]));
    if (!this.#fromIsAhead) {
      for (const stated of scope?.[list] ?? []) {
        const subject = answerSubject(stated as FileAnswer);
        if (known.get(subject)?.confirmed !== true) known.set(subject, { ...stated, confirmed: true } as FileAnswer);
      }
    }
    for (const { list: offeredList, answer, note, otherSwarmServiceId } of this.#offered.answers) {
      if (offeredList !== list) continue;
      const subject = answerSubject(answer);
      const existing = known.get(subject);
      if (existing !== undefined) {
        this.#notes.set(existing, note);
        continue;
      }
      if (this.#otherOwnerNamed(answer, otherSwarmServiceId)) continue;
      known.set(subject, answer);
      this.#notes.set(answer, note);
    }
    return [...known.values()];
  }

  /** The person has named the owner of the two keys, and deleted the other's line. */
  #otherOwnerNamed(answer: FileAnswer, otherSwarmServiceId: string | null): boolean {
    if (otherSwarmServiceId === null || !this.#fromIsAhead || !('nodeId' in answer)) return false;
    const other = this.#stated.get(otherSwarmServiceId)?.serviceId;
    return (this.#facts.from?.overlapOwners ?? []).some(
      ({ nodeId, serviceId, confirmed }) => confirmed && nodeId === answer.nodeId && serviceId === other,
    );
  }
}
