/**
 * The file that is suggested: what a person has said already, what the scope says, and a proposal for everything else. Pure.
 *
 *  1. Without an earlier file, what the current scope states is taken over as it is, confirmed.
 *  2. An earlier file is merged line by line with the current scope, over the scope that it was made for (`three-way.ts`):
 *     neither the person's lines nor those that somebody else has stated meanwhile are undone.
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
  subjectWords,
} from './scope-file.js';
import {
  type AnswerLine,
  answerRules,
  answerWords,
  type CoreflowLine,
  coreflowOf,
  coreflowRules,
  coreflowWords,
  type MountLine,
  mountRules,
  mountWords,
  type ServiceLine,
  serviceRules,
  serviceWords,
} from './scope-lines.js';
import { mergeLine, type MergedLine } from './three-way.js';

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
  /** The scope that this file was made for; null for none, and where it is not known any more. */
  readonly base: IFleetCutoverScope | null;
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
  /** Lines on which the person's file and the scope disagree. */
  readonly conflicts: number;
  /** Lines of the person's that let data go, and were confirmed for an earlier scope. */
  readonly again: number;
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
  readonly #based: ReadonlyMap<string, IFleetCutoverScopeService>;
  readonly #base: IFleetCutoverScope | null;
  /** The scope is another one than the file was made for. */
  readonly #moved: boolean;
  /** Services to look at whatever their class. */
  readonly #disputed = new Set<FileService>();
  #conflicts = 0;
  #again = 0;
  readonly #offered;

  constructor(facts: SuggestionFacts) {
    this.#facts = facts;
    this.#written = writtenVolumes(facts.services);
    this.#stated = new Map(facts.scope?.services.map((each) => [each.swarmServiceId, each]));
    this.#fromServices = new Map(facts.from?.services.map((each) => [each.swarmServiceId, each]));
    this.#moved = facts.from !== null && !sameReference(facts.from.expectedScope, facts.scope);
    this.#base = facts.from === null ? null : this.#moved ? facts.base : facts.scope;
    this.#based = new Map(this.#base?.services.map((each) => [each.swarmServiceId, each]));
    this.#offered = proposeAnswers(facts.blockers);
  }

  run(): Suggestion {
    const { clusterId, runtime, inventory, scope } = this.#facts;
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
      coreflow: this.#coreflow(),
      services,
      overlapOwners: [],
      overlapConfirmations: [],
      dormantVolumes: [],
      releasedEntries: [],
      releasedAnonymousVolumes: [],
    };
    for (const list of answerLists) (file[list] as FileAnswer[]).push(...this.#answers(list));
    return {
      file,
      notes: this.#notes,
      sections,
      unanswerable: this.#offered.unanswerable,
      dropped: this.#dropped,
      conflicts: this.#conflicts,
      again: this.#again,
    };
  }

  #inventoryServices(): FileService[] {
    return this.#facts.services.map((observed) => this.#withOfferedMounts(this.#inventoryService(observed)));
  }

  #inventoryService(observed: IObservedSwarmService): FileService {
    const mine = this.#fromServices.get(observed.id);
    const stated = this.#stated.get(observed.id);
    const line = this.#serviceLine(observed.id);
    if (line.kind === 'absent') {
      const service = this.#proposed(observed, stated ?? this.#replacedBy(observed));
      // The person's own mounts of a service that the scope states no more.
      const kept = mine === undefined || line.by !== 'them' ? [] : this.#mounts(observed.id, mine);
      const classed = new Set(kept.map(({ target }) => target));
      service.mounts = [...kept, ...(service.mounts ?? []).filter(({ target }) => !classed.has(target))];
      return service;
    }
    if (line.kind === 'conflict' && mine === undefined) {
      const service = { ...this.#proposed(observed, stated), ...line.value };
      return this.#noted(service, line, this.#serviceWords(observed.id, line));
    }
    if (mine === undefined) return this.#takenOver(stated!, observed.name);
    const service: FileService = {
      name: observed.name,
      swarmServiceId: observed.id,
      ...line.value,
      mounts: this.#mounts(observed.id, mine),
      confirmed: line.confirmed,
    };
    if (line.kind === 'mine' && !mine.confirmed && stated === undefined) return this.#completed(service, observed);
    return this.#noted(service, line, this.#serviceWords(observed.id, line));
  }

  #serviceLine(swarmServiceId: string): MergedLine<ServiceLine> {
    const mine = this.#fromServices.get(swarmServiceId);
    const lineOf = ({ class: serviceClass, serviceId = null, reason = null }: ServiceLine): ServiceLine => ({
      class: serviceClass,
      serviceId,
      reason,
    });
    const base = this.#based.get(swarmServiceId);
    const theirs = this.#stated.get(swarmServiceId);
    const sides = {
      base: base && lineOf(base),
      mine: mine && { value: lineOf(mine), confirmed: mine.confirmed },
      theirs: theirs && lineOf(theirs),
    };
    return mergeLine(sides, serviceRules, this.#moved);
  }

  #serviceWords(swarmServiceId: string, { kind }: MergedLine<ServiceLine>): string {
    const mine = this.#fromServices.get(swarmServiceId);
    const stated = this.#stated.get(swarmServiceId);
    if (kind === 'theirs') return this.#asStated();
    if (kind === 'mine' && mine?.confirmed === false)
      return `not confirmed in your file; the scope says ${serviceWords(stated)}`;
    return this.#words(kind, serviceWords(mine), serviceWords(stated));
  }

  /** Of a service that the person's file has. */
  #mounts(swarmServiceId: string, mine: FileService): FileMount[] {
    const stated = this.#stated.get(swarmServiceId);
    const byTarget = (mounts: readonly FileMount[] | undefined) =>
      new Map(mounts?.map((mount) => [mount.target, mount]));
    const answered = stated !== undefined && !this.#based.has(swarmServiceId);
    const own = byTarget(mine.mounts?.filter(({ confirmed }) => confirmed || !answered));
    const based = new Map(this.#based.get(swarmServiceId)?.mounts.map((mount) => [mount.target, mount]));
    const theirs = new Map(stated?.mounts.map((mount) => [mount.target, mount]));
    const lineOf = ({ class: mountClass, reason }: MountLine): MountLine => ({ class: mountClass, reason });
    return [...new Set([...own.keys(), ...theirs.keys()])].flatMap((target) => {
      const [base, ownMount, their] = [based.get(target), own.get(target), theirs.get(target)];
      const line = mergeLine<MountLine>(
        {
          base: base && lineOf(base),
          mine: ownMount && { value: lineOf(ownMount), confirmed: ownMount.confirmed },
          theirs: their && lineOf(their),
        },
        mountRules,
        this.#moved,
      );
      if (line.kind === 'absent') return [];
      const mount: FileMount = { target, ...line.value, confirmed: line.confirmed };
      if (line.kind !== 'conflict' && line.kind !== 'again') return [mount];
      return [this.#noted(mount, line, this.#words(line.kind, mountWords(ownMount), mountWords(their)))];
    });
  }

  #coreflow(): IScopeFile['coreflow'] {
    const { from, scope } = this.#facts;
    const undetermined: CoreflowLine = { state: 'undetermined' };
    const theirs = scope?.coreflow ?? undetermined;
    if (from === null) return theirs;
    const base = this.#base?.coreflow ?? undetermined;
    const confirmed = from.coreflow.confirmed !== false;
    const line = mergeLine({ base, mine: { value: coreflowOf(from), confirmed }, theirs }, coreflowRules, this.#moved);
    if (line.kind === 'absent') return theirs;
    if (line.confirmed) return line.value;
    const words =
      line.kind === 'mine'
        ? `not confirmed in your file; the scope says ${coreflowWords(theirs)}`
        : this.#words('conflict', coreflowWords(coreflowOf(from)), coreflowWords(theirs));
    return this.#noted({ ...line.value, confirmed: false }, { ...line, kind: 'conflict' }, words);
  }

  #asStated(): string {
    return `as the scope states it (generation ${this.#facts.scope?.generation ?? 0})`;
  }

  #words(kind: MergedLine<unknown>['kind'], mine: string, theirs: string): string {
    const now = `the scope (generation ${this.#facts.scope?.generation ?? 0})`;
    if (kind === 'conflict')
      return `CONFLICT: your file says ${mine}; ${now} says ${theirs}, which is not what your file was made for`;
    if (kind === 'again')
      return `you confirmed it for another scope, and it lets data go; ${now} says ${theirs}: confirm it again`;
    return 'as it stands in your file';
  }

  /** With its explanation; counted where a person has to decide. */
  #noted<T extends object>(part: T, { kind }: MergedLine<unknown>, words: string): T {
    this.#notes.set(part, words);
    if (kind === 'conflict') this.#conflicts += 1;
    if (kind === 'again') this.#again += 1;
    if ((kind === 'conflict' || kind === 'again') && 'swarmServiceId' in part)
      this.#disputed.add(part as unknown as FileService);
    return part;
  }

  /** Of an unconfirmed proposal what was open when it was made may be known now. */
  #completed(mine: FileService, observed: IObservedSwarmService): FileService {
    const proposal = proposeService(observed, this.#written);
    const completed = {
      ...mine,
      class: mine.class ?? proposal.class,
      serviceId: mine.serviceId ?? this.#ownerOf(mine.class ?? proposal.class, observed.name),
    };
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
    this.#notes.set(service, `${this.#asStated()}${gone}`);
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
      .flatMap((stated) => {
        const mine = this.#fromServices.get(stated.swarmServiceId);
        const line = this.#serviceLine(stated.swarmServiceId);
        if (line.kind === 'absent') return [];
        if (mine === undefined && line.kind === 'theirs') return [this.#takenOver(stated, undefined)];
        const service: FileService = {
          swarmServiceId: stated.swarmServiceId,
          ...line.value,
          mounts:
            mine === undefined
              ? stated.mounts.map((mount) => ({ ...mount, confirmed: false }))
              : this.#mounts(stated.swarmServiceId, mine),
          confirmed: line.confirmed,
        };
        const words = this.#serviceWords(stated.swarmServiceId, line);
        return [this.#noted(service, line, `${words}; it is not in the inventory any more`)];
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
    if (this.#disputed.has(service)) return 'check';
    return (owned && (service.serviceId ?? null) === null) || service.class !== 'application' ? 'check' : 'plain';
  }

  #answers(list: (typeof answerLists)[number]): FileAnswer[] {
    const { from, scope } = this.#facts;
    const bySubject = (answers: readonly unknown[] | undefined) =>
      new Map((answers as readonly FileAnswer[] | undefined)?.map((answer) => [answerSubject(answer), answer]));
    const [base, mine, theirs] = [bySubject(this.#base?.[list]), bySubject(from?.[list]), bySubject(scope?.[list])];
    const known = new Map<string, FileAnswer>();
    for (const subject of new Set([...mine.keys(), ...theirs.keys()])) {
      const [own, their] = [mine.get(subject), theirs.get(subject)];
      const sides = { base: base.get(subject), mine: own && { value: own, confirmed: own.confirmed }, theirs: their };
      const line = mergeLine<AnswerLine>(sides, answerRules(list), this.#moved);
      if (line.kind === 'absent') {
        if (line.by === 'them' && own !== undefined)
          this.#dropped.push(`${list} ${subjectWords(own)}: the scope states it no more`);
        continue;
      }
      const answer = { ...(own ?? their), reason: line.value.reason, confirmed: line.confirmed } as FileAnswer;
      known.set(subject, answer);
      if (line.kind === 'conflict' || line.kind === 'again')
        this.#noted(answer, line, this.#words(line.kind, answerWords(own), answerWords(their)));
    }
    for (const { list: offeredList, answer, note, otherSwarmServiceId } of this.#offered.answers) {
      if (offeredList !== list) continue;
      const subject = answerSubject(answer);
      const existing = known.get(subject);
      if (existing !== undefined) {
        const words = this.#notes.get(existing);
        this.#notes.set(existing, words === undefined ? note : `${words}\n${note}`);
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
    if (otherSwarmServiceId === null || this.#moved || !('nodeId' in answer)) return false;
    const other = this.#stated.get(otherSwarmServiceId)?.serviceId;
    return (this.#facts.from?.overlapOwners ?? []).some(
      ({ nodeId, serviceId, confirmed }) => confirmed && nodeId === answer.nodeId && serviceId === other,
    );
  }
}
