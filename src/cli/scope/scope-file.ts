/**
 * The file in which people state a scope: what the service takes (`ScopeStatement`), pinned to what it was made for, and with
 * `confirmed` beside every statement. A proposal is `confirmed: false`; what could not be told is null. Setting all of them to
 * true at once confirms only what is whole: an open class and a missing reason are refused none the less.
 */
import { type Static, Type } from '@sinclair/typebox';
import {
  closed,
  Digest,
  DockerName,
  DockerText,
  FleetCutoverAcceptedEvidenceReference as Reference,
  Identifier,
  nullable,
  oneOf,
  Reason,
} from '../../contract/schema.js';
import { mountClasses, serviceClasses } from '../../contract/scope.js';

export const scopeFileFormat = 'fleet-cutover-scope/1';

/** As the contract has it; `confirmed` is there only where the file and the scope disagree, and false until a person decides. */
const decided = { confirmed: Type.Optional(Type.Boolean()) };
const FileCoreflow = Type.Union([
  closed({ state: Type.Literal('undetermined'), ...decided }),
  closed({ state: Type.Literal('none'), reason: Reason, ...decided }),
  closed({ state: Type.Literal('classified'), ...decided }),
]);

/** Null or empty while nobody has given one. */
const OpenReason = nullable(Type.String({ maxLength: 512 }));
const confirmed = Type.Boolean();

const FileMount = closed({
  target: DockerText,
  class: nullable(oneOf(...mountClasses)),
  reason: OpenReason,
  confirmed,
});
export type FileMount = Static<typeof FileMount>;

const FileService = closed({
  /** For people; has to be the name that the inventory has. */
  name: Type.Optional(DockerName),
  swarmServiceId: Identifier,
  class: nullable(oneOf(...serviceClasses)),
  serviceId: Type.Optional(nullable(Identifier)),
  reason: Type.Optional(OpenReason),
  mounts: Type.Optional(Type.Array(FileMount, { maxItems: 256 })),
  confirmed,
});
export type FileService = Static<typeof FileService>;

const EntryKey = { nodeId: Identifier, serviceId: Identifier, mountIdentityDigest: Digest };
const answers = { reason: OpenReason, confirmed };
const list = <T extends Parameters<typeof closed>[0]>(properties: T) =>
  Type.Array(closed({ ...properties, ...answers }), { maxItems: 4096 });

export const ScopeFile = closed({
  format: Type.Literal(scopeFileFormat),
  clusterId: Identifier,
  runtime: Reference,
  inventory: Reference,
  expectedScope: nullable(Reference),
  coreflow: FileCoreflow,
  services: Type.Array(FileService, { maxItems: 4096 }),
  overlapOwners: list(EntryKey),
  overlapConfirmations: list({
    nodeId: Identifier,
    mounter: Type.Union([
      closed({ kind: Type.Literal('service'), swarmServiceId: Identifier }),
      closed({ kind: Type.Literal('container'), name: DockerName }),
    ]),
    target: DockerText,
  }),
  dormantVolumes: list({ nodeId: Identifier, volumeName: DockerText }),
  releasedEntries: list(EntryKey),
  releasedAnonymousVolumes: list({ serviceId: Identifier }),
});
export type IScopeFile = Static<typeof ScopeFile>;

/** The lists of answers, in the file's order. */
export const answerLists = [
  'overlapOwners',
  'overlapConfirmations',
  'dormantVolumes',
  'releasedEntries',
  'releasedAnonymousVolumes',
] as const;
export type TAnswerList = (typeof answerLists)[number];
export type FileAnswers = Pick<IScopeFile, TAnswerList>;
export type FileAnswer = FileAnswers[TAnswerList][number];

/** What an answer is about, without what is said of it. */
export function answerSubject(answer: FileAnswer | Omit<FileAnswer, 'confirmed' | 'reason'>): string {
  const { reason: _reason, confirmed: _confirmed, ...subject } = answer as FileAnswer;
  return JSON.stringify(Object.entries(subject).sort(([left], [right]) => (left < right ? -1 : 1)));
}

/** That, for people. */
export function subjectWords(answer: Parameters<typeof answerSubject>[0]): string {
  const subject = JSON.parse(answerSubject(answer)) as [string, unknown][];
  return subject.map(([, value]) => (typeof value === 'string' ? value : JSON.stringify(value))).join(' ');
}

export function isBlank(reason: string | null | undefined): boolean {
  return reason === null || reason === undefined || reason.trim() === '';
}
