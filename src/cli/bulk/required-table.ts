/** Required entries for people: which are shown, and how. */
import type { IFleetCutoverRequiredEntry } from '../../contract/derivation.js';
import { printable } from '../terminal-text.js';
import { grouped } from './progress-line.js';

export const entryStates = ['missing', 'prepared', 'surplus', 'written-off'] as const;
export type TEntryState = (typeof entryStates)[number];

export interface EntryFilter {
  readonly state: TEntryState | null;
  /** Only entries that something blocks. */
  readonly blocked: boolean;
  readonly nodeId: string | null;
}

export function isShown(entry: IFleetCutoverRequiredEntry, { state, blocked, nodeId }: EntryFilter): boolean {
  if (state !== null && entry.state !== state) return false;
  if (blocked && entry.blockers.length === 0) return false;
  return nodeId === null || entry.nodeId === nodeId;
}

/** Of the whole list, whatever of it is shown. */
export interface EntryCounts {
  required: number;
  missing: number;
  prepared: number;
  surplus: number;
  writtenOff: number;
  blocked: number;
  shown: number;
}

export const noEntries = (): EntryCounts => ({
  required: 0,
  missing: 0,
  prepared: 0,
  surplus: 0,
  writtenOff: 0,
  blocked: 0,
  shown: 0,
});

export function countEntry(counts: EntryCounts, { state, blockers }: IFleetCutoverRequiredEntry): void {
  if (state !== 'surplus') counts.required += 1;
  if (state === 'written-off') counts.writtenOff += 1;
  else counts[state] += 1;
  if (blockers.length > 0) counts.blocked += 1;
}

const widths = { state: 12, node: 24, service: 28 };

export const tableHeader = row('STATE', 'NODE', 'SERVICE', 'MOUNT', '');

/** A line of fixed columns: a list is printed as it arrives, so that no width can follow the longest name. */
export function entryLine({ state, nodeId, serviceName, mountPath, volumeName, blockers }: IFleetCutoverRequiredEntry) {
  const volume = volumeName === null ? '' : ` (volume ${printable(volumeName)})`;
  const blocked = blockers.length === 0 ? '' : `  BLOCKED ${blockers.join(', ')}`;
  return row(state, nodeId, printable(serviceName), printable(mountPath) + volume, blocked);
}

function row(state: string, node: string, service: string, mount: string, more: string): string {
  return `${state.padEnd(widths.state)} ${node.padEnd(widths.node)} ${service.padEnd(widths.service)} ${mount}${more}`;
}

export function countsLine({ required, missing, prepared, surplus, writtenOff, blocked, shown }: EntryCounts): string {
  return (
    `${grouped(shown)} shown; ${grouped(required)} required: ${grouped(prepared)} prepared, ${grouped(missing)} missing; ` +
    `${grouped(surplus)} surplus, ${grouped(writtenOff)} written off, ${grouped(blocked)} blocked`
  );
}
