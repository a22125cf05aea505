/** Acts of two administrators: what is lost is proposed by one and confirmed by the other. */
import type pg from 'pg';
import { type FaultFleet, nextReport, registerFaultNode } from './fault-fleet.js';
import { type Act, type ActRequest, type Count, ownerRequest } from './oracle-act.js';
import { sealedDigestOf } from './oracle-digest.js';
import {
  type AnswerBody,
  observationPath,
  oracleMutationId,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
  sameReference,
} from './oracle-http.js';

interface Subject {
  /** The members of the request that name it. */
  readonly names: object;
  /** Its rows in `write_offs`. */
  readonly where: string;
  /** What a confirmation changes beside its own record. */
  readonly confirmed: readonly Count[];
}

interface Kind {
  readonly method: 'writeOffNode' | 'writeOffVolume';
  /** One that nobody has proposed yet. */
  next(): Promise<Subject>;
}

/** On a fleet each of whose volumes can be lost once. `second` is the confirming administrator's token. */
export function writeOffActs(client: RawClient, made: () => Promise<FaultFleet>, second: () => Promise<string>): Act[] {
  let serial = 500;
  const node: Kind = {
    method: 'writeOffNode',
    next: async () => {
      const fleet = await made();
      const lost = await registerFaultNode(client, fleet.clusterId, (serial += 1), 1);
      await client.spark(observationPath, nextReport({ ...fleet, nodes: [] }, lost));
      const { nodeId } = lost;
      return {
        names: { nodeId },
        where: `node_id = '${nodeId}' and handoff_id is null`,
        confirmed: [{ table: 'nodes', where: `node_id = '${nodeId}' and state = 'written-off'` }],
      };
    },
  };
  const volume: Kind = {
    method: 'writeOffVolume',
    next: async () => {
      const key = (await made()).keys.pop();
      if (key === undefined) throw new Error('there is no volume left to be lost');
      const { nodeId, serviceId, mountIdentityDigest } = key;
      return {
        names: { nodeId, serviceId, mountIdentityDigest },
        where: `node_id = '${nodeId}' and record::jsonb #>> '{subject,mountIdentityDigest}' = '${mountIdentityDigest}'`,
        confirmed: [],
      };
    },
  };
  return [node, volume].flatMap((kind) => [proposal(client, made, kind), confirmation(client, made, kind, second)]);
}

function bodyOf({ clusterId, runtime }: FaultFleet, { names }: Subject, proposed: Reference | null) {
  const mutationId = oracleMutationId();
  return {
    mutationId,
    clusterId,
    runtime,
    ...names,
    proposal: proposed,
    reason: 'burnt down',
    verified: 'seen by two',
  };
}

/** The record's generation is there once, and it is the last. */
function recordCounts({ clusterId }: FaultFleet, { where }: Subject, generation: number): Count[] {
  const here = `cluster_id = '${clusterId}' and ${where}`;
  return [
    { table: 'write_offs', where: here, before: generation - 1 },
    { table: 'write_offs', where: `${here} and generation = ${generation}` },
  ];
}

function proposal(client: RawClient, made: () => Promise<FaultFleet>, { method, next }: Kind): Act {
  return {
    name: `${method}, proposed`,
    method,
    next: async () => {
      const [fleet, subject] = [await made(), await next()];
      const request = ownerRequest(client, method, bodyOf(fleet, subject, null), recordCounts(fleet, subject, 1));
      const judge = async (_: pg.Pool, _first: RawAnswer, again: RawAnswer): Promise<string[]> => {
        const { writeOff } = again.body;
        // Nobody confirms the own proposal, however often it was sent.
        const own = await client.owner(method, bodyOf(fleet, subject, referenceIn(writeOff)));
        return [...judgeRecord(writeOff, null), ...judgeRefusal('the proposer’s confirmation', own)];
      };
      return { ...request, judge };
    },
  };
}

function confirmation(
  client: RawClient,
  made: () => Promise<FaultFleet>,
  { method, next }: Kind,
  second: () => Promise<string>,
): Act {
  return {
    name: `${method}, confirmed`,
    method,
    next: async () => {
      const [fleet, subject, token] = [await made(), await next(), await second()];
      const proposed = referenceIn((await client.done(method, bodyOf(fleet, subject, null))).writeOff);
      const counts = [...recordCounts(fleet, subject, 2), ...subject.confirmed];
      const request = ownerRequest(client, method, bodyOf(fleet, subject, proposed), counts, token);
      const judge = async (_: pg.Pool, _first: RawAnswer, again: RawAnswer): Promise<string[]> => {
        const { writeOff } = again.body;
        const more = await client.owner(method, bodyOf(fleet, subject, referenceIn(writeOff)), token);
        return [...judgeRecord(writeOff, proposed), ...judgeRefusal('a second confirmation', more)];
      };
      return { ...request, judge } satisfies ActRequest;
    },
  };
}

function judgeRefusal(what: string, { status, text, body }: RawAnswer): string[] {
  return status === 422 && body.code === 'write-off-refused' ? [] : [`${what} was answered ${status} ${text}`];
}

function judgeRecord(writeOff: AnswerBody, proposed: Reference | null): string[] {
  const faults: string[] = [];
  const { state, proposedBy, confirmedBy } = writeOff;
  if (sealedDigestOf('fleet-cutover-write-off', writeOff) !== writeOff.digest)
    faults.push('the record’s digest is wrong');
  if (!sameReference(writeOff.predecessor, proposed)) faults.push('the record names another proposal');
  const people = proposed === null ? confirmedBy === null : confirmedBy !== null && confirmedBy !== proposedBy;
  if (state !== (proposed === null ? 'proposed' : 'confirmed') || !people)
    faults.push(`${state} by ${proposedBy} and ${confirmedBy}`);
  return faults;
}
