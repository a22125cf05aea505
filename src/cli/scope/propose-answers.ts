/**
 * Which answers of a person would remove which blockers: pure. An answer is offered without its reason, which is what makes it
 * one; what no statement of the scope removes is given back.
 */
import type { IFleetCutoverBlocker } from '../../contract/derivation.js';
import { type FileAnswer, answerSubject, type FileAnswers, type TAnswerList } from './scope-file.js';
import type { ProposedMount } from './propose-services.js';

export interface OfferedAnswer {
  readonly list: TAnswerList;
  readonly answer: FileAnswer;
  readonly note: string;
  /** Of the service on the other side of two keys; one owner answers for both. */
  readonly otherSwarmServiceId: string | null;
}

export interface OfferedAnswers {
  readonly answers: readonly OfferedAnswer[];
  readonly mounts: readonly { readonly swarmServiceId: string; readonly mount: ProposedMount }[];
  readonly unanswerable: readonly IFleetCutoverBlocker[];
}

const open = { reason: null, confirmed: false } as const;

export function proposeAnswers(blockers: readonly IFleetCutoverBlocker[]): OfferedAnswers {
  const answers = new Map<string, OfferedAnswer>();
  const mounts = new Map<string, OfferedAnswers['mounts'][number]>();
  const unanswerable: IFleetCutoverBlocker[] = [];
  for (const blocker of blockers) {
    const mount = offeredMount(blocker);
    const answer = mount === null ? offeredAnswer(blocker) : null;
    if (mount !== null) mounts.set(`${mount.swarmServiceId}\0${mount.mount.target}`, mount);
    else if (answer === null) unanswerable.push(blocker);
    else {
      const key = `${answer.list}\0${answerSubject(answer.answer)}`;
      const known = answers.get(key);
      answers.set(key, known === undefined ? answer : { ...known, note: joined(known.note, answer.note) });
    }
  }
  return { answers: [...answers.values()], mounts: [...mounts.values()], unanswerable };
}

/** One confirmation may cover hundreds of keys. */
const maximumNote = 600;

function joined(note: string, more: string): string {
  if (note.includes(more) || note.endsWith('…')) return note;
  return note.length + more.length > maximumNote ? `${note}; …` : `${note}; ${more}`;
}

function offeredAnswer(blocker: IFleetCutoverBlocker): OfferedAnswer | null {
  const { code, nodeId, entry, target, swarmServiceId, containerName, volumeName, detail } = blocker;
  const offer = <L extends TAnswerList>(list: L, answer: FileAnswers[L][number], note: string): OfferedAnswer => ({
    list,
    answer,
    note,
    otherSwarmServiceId: code === 'overlap-keys' ? swarmServiceId : null,
  });
  switch (code) {
    case 'overlap-keys':
      if (entry === null) return null;
      return offer(
        'overlapOwners',
        { ...entry, ...open },
        `is this the owner? ${detail}. Keep the owner's line, delete the other's`,
      );
    case 'overlap-container': {
      if (nodeId === null || target === null) return null;
      const mounter =
        swarmServiceId !== null
          ? { kind: 'service' as const, swarmServiceId }
          : containerName !== null
            ? { kind: 'container' as const, name: containerName }
            : null;
      if (mounter === null) return null;
      const note = `${detail}. Confirmed, it has to be gone before pallet`;
      return offer('overlapConfirmations', { nodeId, mounter, target, ...open }, note);
    }
    case 'volume-unmounted':
      if (nodeId === null || volumeName === null) return null;
      return offer('dormantVolumes', { nodeId, volumeName, ...open }, `${detail}. Dormant, it is left where it is`);
    case 'target-invalid':
      if (entry === null) return null;
      return offer('releasedEntries', { ...entry, ...open }, `${detail}. Released, its data is not handed over`);
    case 'coreflow-undetermined':
    case 'driver-unclassified':
    case 'entry-limit':
    case 'ingress-persistent-mount':
    case 'mount-limit':
    case 'node-not-targeted':
    case 'node-unobserved':
    case 'read-only-uncovered':
    case 'scope-missing':
    case 'service-unclassified':
    case 'snapshot-incomplete':
    case 'source-empty':
    case 'task-limit':
    case 'task-unknown':
      return null;
  }
}

function offeredMount({ code, swarmServiceId, target, detail }: IFleetCutoverBlocker) {
  if (swarmServiceId === null || target === null) return null;
  const offer = (mountClass: ProposedMount['class'], reason: string | null) => ({
    swarmServiceId,
    mount: { target, class: mountClass, reason, note: detail },
  });
  switch (code) {
    case 'driver-unclassified':
      return detail.includes('type tmpfs')
        ? offer('ephemeral', 'tmpfs behind a volume name, lost at every restart')
        : offer('external', 'no directory of the node');
    case 'read-only-uncovered':
      return offer('shared-read-only', null);
    case 'ingress-persistent-mount':
    case 'source-empty':
      return offer(null, null);
    case 'coreflow-undetermined':
    case 'entry-limit':
    case 'mount-limit':
    case 'node-not-targeted':
    case 'node-unobserved':
    case 'overlap-container':
    case 'overlap-keys':
    case 'scope-missing':
    case 'service-unclassified':
    case 'snapshot-incomplete':
    case 'target-invalid':
    case 'task-limit':
    case 'task-unknown':
    case 'volume-unmounted':
      return null;
  }
}
