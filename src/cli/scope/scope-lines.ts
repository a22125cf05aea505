/** The lines of a scope and of a file as they are merged: what is compared of each, what of it lets data go, its words. Pure. */
import type { IFleetCutoverScope } from '../../contract/scope.js';
import { printable } from '../terminal-text.js';
import {
  type FileAnswer,
  type FileMount,
  type FileService,
  type IScopeFile,
  isBlank,
  type TAnswerList,
} from './scope-file.js';
import type { LineRules } from './three-way.js';

/** A service without its mounts, which are lines of their own. */
export type ServiceLine = Pick<FileService, 'class' | 'serviceId' | 'reason'>;
export type MountLine = Pick<FileMount, 'class' | 'reason'>;
export type AnswerLine = Pick<FileAnswer, 'reason'>;
export type CoreflowLine = IFleetCutoverScope['coreflow'];

const sameReason = (left: string | null | undefined, right: string | null | undefined) =>
  isBlank(left) ? isBlank(right) : left === right;

/** What is excluded or the relay has no entry. */
export const serviceRules: LineRules<ServiceLine> = {
  same: (left, right) =>
    left.class === right.class &&
    (left.serviceId ?? null) === (right.serviceId ?? null) &&
    sameReason(left.reason, right.reason),
  letsGo: ({ class: serviceClass }) => serviceClass === 'excluded' || serviceClass === 'coreflow',
  opened: () => ({ class: null, serviceId: null, reason: null }),
};

/** For a mount of any class no entry is made. */
export const mountRules: LineRules<MountLine> = {
  same: (left, right) => left.class === right.class && sameReason(left.reason, right.reason),
  letsGo: ({ class: mountClass }) => mountClass !== null,
  opened: () => ({ class: null, reason: null }),
};

export function answerRules(list: TAnswerList): LineRules<AnswerLine> {
  return {
    same: (left, right) => sameReason(left.reason, right.reason),
    // A confirmed overlap names what has to be gone before pallet; it leaves the required set as it is.
    letsGo: () => list !== 'overlapConfirmations',
    opened: () => ({ reason: null }),
  };
}

export const coreflowRules: LineRules<CoreflowLine> = {
  same: (left, right) =>
    left.state === right.state && (left.state !== 'none' || right.state !== 'none' || left.reason === right.reason),
  letsGo: () => false,
  opened: (value) => value,
};

export function coreflowOf({ coreflow }: IScopeFile): CoreflowLine {
  const { confirmed: _confirmed, ...line } = coreflow;
  return line;
}

const withReason = (text: string, reason: string | null | undefined) =>
  printable(isBlank(reason) ? text : `${text} (${reason ?? ''})`);

export const serviceWords = (line: ServiceLine | undefined): string =>
  line === undefined
    ? 'no statement'
    : withReason(
        `${line.class ?? 'open'}${(line.serviceId ?? null) === null ? '' : ` of ${line.serviceId ?? ''}`}`,
        line.reason,
      );
export const mountWords = (line: MountLine | undefined): string =>
  line === undefined ? 'no class, so data' : withReason(line.class ?? 'open', line.reason);
export const answerWords = (line: AnswerLine | undefined): string =>
  line === undefined ? 'no statement' : withReason('stated', line.reason);
export const coreflowWords = (line: CoreflowLine | undefined): string =>
  line === undefined ? 'no statement' : withReason(line.state, line.state === 'none' ? line.reason : null);
