/** What a statement changes of the current scope: pure. */
import type { IFleetCutoverScopeStatement } from '../../contract/scope.js';
import { printable } from '../terminal-text.js';
import { answerLists, type FileAnswer, subjectWords } from './scope-file.js';

export interface ScopeChange {
  readonly change: 'comes' | 'leaves' | 'changes';
  readonly list: string;
  /** What of the list. */
  readonly subject: string;
  readonly from: string | null;
  readonly to: string | null;
}

type Statement = IFleetCutoverScopeStatement;
type Service = Statement['services'][number];

export function scopeChanges(
  before: Statement | null,
  after: Statement,
  nameOf: (swarmServiceId: string) => string,
): ScopeChange[] {
  const services = (statement: Statement | null) =>
    new Map(statement?.services.map((service) => [nameOf(service.swarmServiceId), serviceText(service)]));
  const mounts = (statement: Statement | null) =>
    new Map(
      statement?.services.flatMap((service) =>
        service.mounts.map(
          (mount) => [`${nameOf(service.swarmServiceId)} ${mount.target}`, `${mount.class} (${mount.reason})`] as const,
        ),
      ),
    );
  const coreflow = (statement: Statement | null) => {
    const state = statement?.coreflow ?? { state: 'undetermined' as const };
    return new Map([['relay', 'reason' in state ? `${state.state} (${state.reason})` : state.state]]);
  };
  return [
    ...compared('coreflow', coreflow(before), coreflow(after)),
    ...compared('services', services(before), services(after)),
    ...compared('mounts', mounts(before), mounts(after)),
    ...answerLists.flatMap((list) => compared(list, answersOf(before?.[list]), answersOf(after[list]))),
  ];
}

function serviceText({ class: serviceClass, serviceId, reason }: Service): string {
  return `${serviceClass}${serviceId === null ? '' : ` of ${serviceId}`}${reason === null ? '' : ` (${reason})`}`;
}

function answersOf(answers: readonly { readonly reason: string }[] | undefined): Map<string, string> {
  return new Map(answers?.map((answer) => [subjectWords(answer as unknown as FileAnswer), answer.reason]));
}

function compared(
  list: string,
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
): ScopeChange[] {
  const changes: ScopeChange[] = [];
  for (const [subject, from] of before) {
    const to = after.get(subject);
    if (to === undefined) changes.push({ change: 'leaves', list, subject, from, to: null });
    else if (to !== from) changes.push({ change: 'changes', list, subject, from, to });
  }
  for (const [subject, to] of after) {
    if (!before.has(subject)) changes.push({ change: 'comes', list, subject, from: null, to });
  }
  return changes;
}

const signs = { comes: '+', leaves: '-', changes: '~' } as const;

export function changeLines(changes: readonly ScopeChange[]): string[] {
  if (changes.length === 0) return ['nothing changes'];
  return changes.map(({ change, list, subject, from, to }) => {
    const what = [from, to].filter((text) => text !== null).join(' → ');
    return `${signs[change]} ${list}: ${printable(subject)}: ${printable(what)}`;
  });
}
