/** Passes requests on to the service, and loses the first answer that says that something was done. */
import { type AnswerProxy, openAnswerProxy } from './answer-proxy.js';

export interface LosingProxy extends AnswerProxy {
  /** Answers of status 200 that no client has seen: 0 or 1. */
  readonly lost: number;
}

export async function openLosingProxy(target: string): Promise<LosingProxy> {
  let lost = 0;
  const proxy = await openAnswerProxy(target, ({ status, body }) => {
    if (status !== 200 || lost > 0) return body;
    lost += 1;
    return null;
  });
  return {
    url: proxy.url,
    close: () => proxy.close(),
    get lost() {
      return lost;
    },
  };
}
