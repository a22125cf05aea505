/** Many writers on one aggregate, and what must be true of what they were told. */
import { type FaultFleet, type FaultKey, prepareBody, upsertOf } from './fault-fleet.js';
import { type AnswerBody, type RawClient, type Reference, referenceIn, sameReference } from './oracle-http.js';
import { bareDigestOf, sealedDigestOf } from './oracle-digest.js';

export interface Attempt {
  readonly mutationId: string;
  readonly expected: Reference | null;
  readonly key: FaultKey;
  readonly capacity: number;
  readonly sentAt: number;
  readonly answeredAt: number;
  readonly status: number;
  readonly body: AnswerBody;
}

export interface Contest {
  readonly writers: number;
  readonly attempts: number;
  /** Where all writers begin. */
  readonly from: Reference | null;
  /** Unix ms; ends earlier then, between two attempts of each writer. */
  readonly until?: number;
}

/** Every writer sends one upsert after the other against the newest aggregate that it was told of. */
export async function contend(client: RawClient, fleet: FaultFleet, contest: Contest): Promise<Attempt[]> {
  const done: Attempt[] = [];
  let started = 0;
  const write = async (writer: number): Promise<void> => {
    let expected = contest.from;
    while (started < contest.attempts && Date.now() < (contest.until ?? Infinity)) {
      started += 1;
      const capacity = started;
      const key = fleet.keys[(writer + started) % fleet.keys.length]!;
      const body = prepareBody(fleet, { expectedAggregate: expected, upserts: [upsertOf(key, capacity)] });
      const answer = await client.owner('prepareFleetCutoverVolumeHandoffs', body);
      const { status, sentAt, answeredAt } = answer;
      done.push({
        mutationId: body.mutationId,
        expected,
        key,
        capacity,
        sentAt,
        answeredAt,
        status,
        body: answer.body,
      });
      if (status === 200) expected = referenceIn(answer.body.aggregate);
      else if (status === 409) expected = answer.body.current;
    }
  };
  await Promise.all(Array.from({ length: contest.writers }, (_, writer) => write(writer)));
  return done;
}

/** Everything that is wrong with the contest; empty when nothing is. `present` is read after it, over HTTP. */
export async function judgeContest(
  client: RawClient,
  fleet: FaultFleet,
  contest: Contest,
  attempts: readonly Attempt[],
): Promise<string[]> {
  const won = attempts.filter((attempt) => attempt.status === 200);
  const byGeneration = [...won].sort((left, right) => generationOf(left) - generationOf(right));
  return [
    ...judgeLosers(attempts),
    ...judgeChain(contest.from, byGeneration),
    ...judgeRealTime(byGeneration),
    ...judgeCurrents(contest.from, attempts, byGeneration),
    ...(await judgePresent(client, fleet, contest.from, byGeneration)),
  ];
}

function generationOf(attempt: Attempt): number {
  return attempt.body.aggregate.generation as number;
}

/** Each loser got the one typed answer that says what happened, and no other status was given. */
function judgeLosers(attempts: readonly Attempt[]): string[] {
  return attempts.flatMap(({ status, body, mutationId, expected }) => {
    if (status === 200) return [];
    const typed =
      status === 409 &&
      body?.code === 'aggregate-stale' &&
      body.expectation === 'expectedAggregate' &&
      body.mutationOutcome === 'not-applied' &&
      body.retrySafe === false &&
      !sameReference(body.current, expected);
    return typed ? [] : [`${mutationId} lost with ${status} ${JSON.stringify(body)}`];
  });
}

/** The accepted generations are one gapless chain, each naming the one before it, each digest what its record hashes to. */
function judgeChain(from: Reference | null, won: readonly Attempt[]): string[] {
  const faults: string[] = [];
  let before = from;
  for (const attempt of won) {
    const { aggregate, handoffs } = attempt.body;
    if (aggregate.generation !== (before?.generation ?? 0) + 1)
      faults.push(`generation ${aggregate.generation} follows ${before?.generation}`);
    if (!sameReference(aggregate.predecessor, before))
      faults.push(`generation ${aggregate.generation} names another predecessor`);
    if (!sameReference(attempt.expected, before))
      faults.push(`generation ${aggregate.generation} was won against another expectation`);
    if (sealedDigestOf('fleet-cutover-prepared-volume-handoff-aggregate', aggregate) !== aggregate.digest) {
      faults.push(`the digest of generation ${aggregate.generation} is wrong`);
    }
    const [only] = handoffs;
    const { nodeId, id } = only;
    const handoff = { generation: only.reference.generation, digest: only.reference.digest };
    if (bareDigestOf([{ nodeId, id, handoff }]) !== aggregate.changeDigest) {
      faults.push(`the change digest of generation ${aggregate.generation} is wrong`);
    }
    before = referenceIn(aggregate);
  }
  return faults;
}

/** What was answered before another was sent comes before it in the chain. */
function judgeRealTime(won: readonly Attempt[]): string[] {
  const faults: string[] = [];
  let latestSent = -Infinity;
  for (const attempt of won) {
    if (attempt.answeredAt < latestSent)
      faults.push(`generation ${generationOf(attempt)} was answered before an earlier one was sent`);
    latestSent = Math.max(latestSent, attempt.sentAt);
  }
  return faults;
}

/** What losers were told is current was accepted, and not older than what was answered before they asked. */
function judgeCurrents(from: Reference | null, attempts: readonly Attempt[], won: readonly Attempt[]): string[] {
  const known = new Map(won.map((attempt) => [generationOf(attempt), referenceIn(attempt.body.aggregate)]));
  if (from !== null) known.set(from.generation, from);
  const acknowledged = [...won].sort((left, right) => left.answeredAt - right.answeredAt);
  const losers = attempts.filter((attempt) => attempt.status === 409).sort((left, right) => left.sentAt - right.sentAt);
  const faults: string[] = [];
  let position = 0;
  let newest = from?.generation ?? 0;
  for (const loser of losers) {
    while (position < acknowledged.length && acknowledged[position]!.answeredAt < loser.sentAt) {
      newest = Math.max(newest, generationOf(acknowledged[position]!));
      position += 1;
    }
    const current: Reference | null = loser.body.current;
    const accepted = current === null ? from : known.get(current.generation);
    if (!sameReference(current, accepted ?? null))
      faults.push(`${loser.mutationId} was told of a generation that nobody won`);
    if ((current?.generation ?? 0) < newest)
      faults.push(`${loser.mutationId} was told ${current?.generation} after ${newest} was answered`);
  }
  return faults;
}

/** Acknowledged equals present: the head, and the last capacity of each key. */
async function judgePresent(
  client: RawClient,
  fleet: FaultFleet,
  from: Reference | null,
  won: readonly Attempt[],
): Promise<string[]> {
  const faults: string[] = [];
  const { clusterId } = fleet;
  const head = await client.done('readFleetCutoverVolumeHandoffAggregate', { clusterId, aggregate: null });
  const last = won.at(-1)?.body.aggregate ?? from;
  if (
    !sameReference(
      head.aggregate === null ? null : referenceIn(head.aggregate),
      last === null ? null : referenceIn(last),
    )
  ) {
    faults.push(`the head is ${JSON.stringify(head.aggregate)}, the last win ${JSON.stringify(last)}`);
  }
  const expected = new Map<string, Attempt>();
  for (const attempt of won) expected.set(attempt.body.handoffs[0].id, attempt);
  for (const [id, attempt] of expected) {
    const { handoff } = await client.done('readFleetCutoverVolumeHandoff', {
      clusterId,
      nodeId: attempt.key.nodeId,
      id,
      generation: null,
    });
    const capacity: unknown = capacityIn(handoff);
    if (capacity !== attempt.capacity)
      faults.push(`${id} has capacity ${String(capacity)}, acknowledged was ${attempt.capacity}`);
    if (!sameReference(referenceIn(handoff), attempt.body.handoffs[0].reference))
      faults.push(`${id} has another reference than acknowledged`);
  }
  return faults;
}

/** Wherever the record keeps its request. */
function capacityIn(value: AnswerBody): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  if ('requestedCapacityBytes' in value) return value.requestedCapacityBytes;
  for (const member of Object.values(value)) {
    const found = capacityIn(member);
    if (found !== undefined) return found;
  }
  return undefined;
}
