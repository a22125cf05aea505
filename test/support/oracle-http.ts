/** A raw HTTP client for oracles: it shares no code with the service and its typed client. */
import { Agent, request } from 'undici';

export interface Reference {
  readonly id: string;
  readonly generation: number;
  readonly digest: string;
}

/** What a 200 or a problem document may hold; oracles look at it field by field. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- an answer is untrusted JSON until an oracle has judged it
export type AnswerBody = any;

/** An HTTP answer, or the end of the connection before there was one. */
export interface RawAnswer {
  /** 0: there was no answer. */
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** The parsed JSON; null where the answer is empty, no JSON, or absent. */
  readonly body: AnswerBody;
  /** Milliseconds of `performance.now()`. */
  readonly sentAt: number;
  readonly answeredAt: number;
}

/** Spark's endpoints, spelled as the wire has them. */
export const observationPath = '/spark/swarm-nodes/swarm-observation';
export const pagePath = '/spark/swarm-nodes/fleet-cutover-prepared-volume-handoffs';

/** The path of an owner method, by the rule that the transport documents. */
export function ownerPath(method: string): string {
  return `/requests/${/FleetCutover|^writeOff/.test(method) ? 'fleetcutover' : 'fleet'}/${method}`;
}

export interface RawClient {
  url: string;
  readonly token: string;
  /** Sends a body as it is; without one of its own it carries the administrator's token. Never throws. */
  send(
    path: string,
    body: string | Buffer | undefined,
    headers?: Record<string, string>,
    verb?: string,
  ): Promise<RawAnswer>;
  /** An owner method with the administrator's token, or another. */
  owner(method: string, body: unknown, token?: string): Promise<RawAnswer>;
  /** The same, failing where the answer is not a 200. */
  done(method: string, body: unknown, token?: string): Promise<AnswerBody>;
  /** A Spark endpoint: the token stands in the body. */
  spark(path: string, body: unknown): Promise<RawAnswer>;
  close(): Promise<void>;
}

const ANSWER_TIMEOUT_MS = 60_000;

/** At most `connections` sockets. `url` may be changed when the service comes back elsewhere. */
export function openRawClient(url: string, token: string, connections = 64): RawClient {
  const agent = new Agent({ connections, pipelining: 1, keepAliveTimeout: 10_000, connect: { timeout: 10_000 } });
  const client: RawClient = {
    url,
    token,
    send: async (path, body, headers = { authorization: `Bearer ${token}` }, verb = 'POST') => {
      const sentAt = performance.now();
      try {
        const response = await request(client.url + path, {
          method: verb as 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          ...(body === undefined ? {} : { body }),
          dispatcher: agent,
          headersTimeout: ANSWER_TIMEOUT_MS,
          bodyTimeout: ANSWER_TIMEOUT_MS,
        });
        const text = await response.body.text();
        const answeredAt = performance.now();
        return { status: response.statusCode, headers: response.headers, text, body: parsed(text), sentAt, answeredAt };
      } catch (error) {
        const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
        return { status: 0, headers: {}, text, body: null, sentAt, answeredAt: performance.now() };
      }
    },
    owner: (method, body, bearer = token) =>
      client.send(ownerPath(method), JSON.stringify(body), { authorization: `Bearer ${bearer}` }),
    done: async (method, body, bearer) => {
      const answer = await client.owner(method, body, bearer);
      if (answer.status !== 200) throw new Error(`${method}: ${answer.status} ${answer.text}`);
      return answer.body;
    },
    spark: (path, body) => client.send(path, JSON.stringify(body), {}),
    close: () => agent.destroy(),
  };
  return client;
}

function parsed(text: string): AnswerBody {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

let mutations = 0;

/** A fresh mutation id of this process. */
export function oracleMutationId(prefix = 'f'): string {
  mutations += 1;
  return `${prefix}-${process.pid}-${mutations}`;
}

/** Only the three members that the wire's references have. */
export function referenceIn(record: AnswerBody): Reference {
  return { id: record.id, generation: record.generation, digest: record.digest };
}

export function sameReference(left: Reference | null, right: Reference | null): boolean {
  if (left === null || right === null) return left === right;
  return left.id === right.id && left.generation === right.generation && left.digest === right.digest;
}
