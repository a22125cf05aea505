/** Reports of an exact number of bytes, as a node with very much on it sends them. */
import type { AnswerBody } from './oracle-http.js';

/** The contract's limits, as the source states them. */
export const censusBytes = 4_194_304;
export const fenceBytes = 131_072;

export interface ReportSize {
  /** Of all but the fence member. */
  readonly census: number;
  /** Of the fence member; what its fences leave is blanks. */
  readonly fences: number;
}

const FENCES = '"fleetCutoverHeldVolumeFences":';

/** The report with so many volumes that its census has the size, half of it in tasks that have ended where it is a manager's. */
export function fullReport(body: AnswerBody, { census, fences }: ReportSize): string {
  const { fleetCutoverHeldVolumeFences: held, ...rest } = body.observation;
  const observation = { ...rest, fleetCutoverHeldVolumeFences: 0 };
  const report = { ...body, observation };
  growTasks(observation.fleetCutoverManagerSnapshot);
  growVolumes(observation.fleetCutoverLocalNodeSnapshot.volumes, () => census + 1 - bytesOf(report));
  const member = JSON.stringify(held);
  const padded = `{${' '.repeat(fences - Buffer.byteLength(member))}${member.slice(1)}`;
  return JSON.stringify(report).replace(`${FENCES}0`, () => FENCES + padded);
}

function bytesOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/** As many live tasks as the contract allows. */
function growTasks(snapshot: AnswerBody): void {
  const [task] = snapshot.tasks;
  while (snapshot.tasks.length < 4_096) {
    const id = `full-${snapshot.tasks.length}`;
    snapshot.tasks.push({ ...task, id, nodeId: null, slot: 1, state: 'pending', containerId: null });
  }
}

/** Until there is no room: large ones, and a last one that takes the rest. */
function growVolumes(volumes: AnswerBody[], room: () => number): void {
  const volume = (index: number, length: number) => ({
    name: `w${index}`,
    driver: 'local',
    options: null,
    mountpoint: 'm'.repeat(length),
  });
  const size = bytesOf(volume(10_000, 3_000)) + 1;
  const count = Math.floor((room() - 10_000) / size);
  for (let index = 0; index < count; index += 1) volumes.push(volume(index + 10_000, 3_000));
  for (let index = 0; room() > 0; index += 1) {
    const left = room() - (bytesOf(volume(index + 90_000, 0)) + 1);
    // A rest smaller than a volume is avoided.
    volumes.push(volume(index + 90_000, left > 4_000 ? 2_000 : left));
  }
}
