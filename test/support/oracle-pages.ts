/** Reading all pages of the current revision as a Spark does, and proving by other means that they are one whole. */
import { type FaultNode, protocol } from './fault-fleet.js';
import {
  type AnswerBody,
  pagePath,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
  sameReference,
} from './oracle-http.js';
import { bareDigestOf, sealedDigestOf } from './oracle-digest.js';

export interface WholeRevision {
  readonly aggregate: AnswerBody;
  readonly entries: readonly { nodeId: string; id: string; generation: number; digest: string }[];
  /** The node's own handoffs. */
  readonly handoffs: readonly AnswerBody[];
}

export function readPage(
  client: RawClient,
  node: FaultNode,
  aggregate: Reference | null,
  pageIndex: number,
): Promise<RawAnswer> {
  return client.spark(pagePath, { nodeId: node.nodeId, nodeToken: node.token, protocol, aggregate, pageIndex });
}

/** Null where there is no complete revision now. Throws with the first thing that is wrong. */
export async function readWholeRevision(client: RawClient, node: FaultNode): Promise<WholeRevision | null> {
  const first = demand(await readPage(client, node, null, 0));
  if (first.aggregate === null) return null;
  const pin = referenceIn(first.aggregate);
  const pages = [first];
  for (let index = 1; index < first.aggregate.pageCount; index += 1)
    pages.push(demand(await readPage(client, node, pin, index)));
  return proveWhole(node, pages);
}

function demand(answer: RawAnswer): AnswerBody {
  if (answer.status !== 200) throw new Error(`page read: ${answer.status} ${answer.text}`);
  return answer.body;
}

function proveWhole(node: FaultNode, pages: readonly AnswerBody[]): WholeRevision {
  const { aggregate } = pages[0];
  const pin = referenceIn(aggregate);
  claim(
    sealedDigestOf('fleet-cutover-prepared-volume-handoff-aggregate', aggregate) === aggregate.digest,
    'the header’s digest',
  );
  claim(aggregate.state === 'complete' && aggregate.actualCount === aggregate.requiredCount, 'the header’s state');
  const entries: WholeRevision['entries'][number][] = [];
  const handoffs: AnswerBody[] = [];
  const contentDigests: string[] = [];
  for (const [index, answer] of pages.entries()) {
    const { page } = answer;
    claim(bareDigestOf(answer.aggregate) === bareDigestOf(aggregate), `the header beside page ${index}`);
    claim(sameReference(page.aggregate, pin) && page.pageIndex === index, `the place of page ${index}`);
    claim(
      bareDigestOf({ handoffs: page.handoffs, pageIndex: index }) === page.contentDigest,
      `the content of page ${index}`,
    );
    const full = index === pages.length - 1 ? page.handoffs.length >= 1 : page.handoffs.length === 32;
    claim(full && page.handoffs.length <= 32, `the size of page ${index}`);
    const own = page.handoffs.filter((entry: AnswerBody) => entry.nodeId === node.nodeId);
    claim(own.length === answer.nodeHandoffs.length, `the node’s part of page ${index}`);
    for (const [position, handoff] of answer.nodeHandoffs.entries()) {
      claim(sameReference(referenceIn(handoff), referenceIn(own[position])), `handoff ${position} of page ${index}`);
      claim(
        sealedDigestOf('fleet-cutover-prepared-volume-handoff-intent', handoff) === handoff.digest,
        `the digest of ${handoff.id}`,
      );
    }
    entries.push(...page.handoffs);
    handoffs.push(...answer.nodeHandoffs);
    contentDigests.push(page.contentDigest);
  }
  claim(bareDigestOf(contentDigests) === aggregate.setDigest, 'the set digest');
  claim(entries.length === aggregate.actualCount, 'the count');
  const order = entries.map((entry) => `${entry.nodeId}\0${entry.id}`);
  claim(
    order.every((key, index) => index === 0 || order[index - 1]! < key),
    'the order',
  );
  return { aggregate, entries, handoffs };
}

function claim(holds: boolean, what: string): void {
  if (!holds) throw new Error(`${what} is wrong`);
}
