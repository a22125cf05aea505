/** Passes requests on to the service, and changes one digit of a digest in every page that comes back. */
import { type AnswerProxy, openAnswerProxy } from './answer-proxy.js';

export function openTamperingProxy(target: string): Promise<AnswerProxy> {
  return openAnswerProxy(target, ({ body }) => tamper(body));
}

/** The first handoff digest that the page commits to gets another last digit. */
function tamper(body: string): string {
  return body.replace(
    /("handoffs":\[\{"digest":"sha256:[0-9a-f]{63})([0-9a-f])/,
    (_match, head: string, last: string) => {
      return head + (last === '0' ? '1' : '0');
    },
  );
}
