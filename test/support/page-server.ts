/** A service that has one set of prepared volume handoffs, and changes its answers as a test wants. */
import type {
  ISparkGetFleetCutoverPreparedVolumeHandoffsRequest as PageRequest,
  TSparkGetFleetCutoverPreparedVolumeHandoffsResponse as PageAnswer,
} from '../../src/contract/handoff.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import { refuse } from '../../src/contract/problems.js';
import { referenceOf, sameReference } from '../../src/contract/schema.js';
import {
  type AnsweringServer,
  answerJson,
  answerProblem,
  answerText,
  openAnsweringServer,
} from './answering-server.js';
import type { HandoffSet } from './handoff-set.js';

/** Mutable copy of an answer with a page. */
export type OpenAnswer = {
  -readonly [K in keyof Extract<PageAnswer, { page: object }>]: Extract<PageAnswer, { page: object }>[K];
};

export interface PageServer extends AnsweringServer {
  /** What is current; null for nothing complete. */
  current: HandoffSet | null;
  /** Changes the answers with a page, in place or by another; a string is sent as it is. */
  tamper: (answer: OpenAnswer, request: PageRequest) => unknown;
}

export async function openPageServer(set: HandoffSet | null): Promise<PageServer> {
  const state = { current: set, tamper: ((answer) => answer) as PageServer['tamper'] };
  const server = await openAnsweringServer((received, response) => {
    const request = received.json as unknown as PageRequest;
    const { current } = state;
    if (current === null || (request.aggregate === null && current.pages.length === 0)) {
      return answerJson(response, nothing(request));
    }
    if (request.aggregate !== null && !sameReference(request.aggregate, referenceOf(current.aggregate))) {
      return answerProblem(response, refuse('pin-unknown').problem);
    }
    const answer = pageAnswer(current, request);
    if (answer === null) return answerProblem(response, refuse('page-unknown').problem);
    const tampered = state.tamper(answer, request) ?? answer;
    return typeof tampered === 'string' ? answerText(response, tampered) : answerJson(response, tampered);
  });
  return Object.assign(state, server) as unknown as PageServer;
}

export function nothing(request: PageRequest): PageAnswer {
  return { aggregate: null, page: null, nodeId: request.nodeId, nodeHandoffs: [], protocol: supportedProtocol };
}

/** The right answer, as a copy that may be changed. */
export function pageAnswer(set: HandoffSet, { nodeId, pageIndex }: PageRequest): OpenAnswer | null {
  const page = set.pages[pageIndex];
  if (page === undefined) return null;
  const ids = new Set(page.handoffs.map(({ id }) => id));
  const nodeHandoffs = set.handoffs.filter((handoff) => handoff.nodeId === nodeId && ids.has(handoff.id));
  return structuredClone({ aggregate: set.aggregate, page, nodeId, nodeHandoffs, protocol: supportedProtocol });
}
