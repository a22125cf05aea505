import { createHash, randomBytes } from 'node:crypto';
import { Writable } from 'node:stream';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { createApp } from '../../src/app.js';
import { type Clock, systemClock } from '../../src/clock.js';
import type { Config } from '../../src/config.js';
import type { IProblemDocument } from '../../src/contract/problems.js';
import { methodPath } from '../../src/contract/method.js';
import { methods, type MethodRequest, type MethodResponse, type TMethodName } from '../../src/contract/methods.js';
import { readMigrations } from '../../src/db/migration-files.js';
import type { FaultHook } from '../../src/db/transaction.js';
import type { Deps } from '../../src/deps.js';
import { bootstrap } from '../../src/features/auth/host-operations.js';
import type { KeyRing } from '../../src/features/ingress/sealing.js';
import { Secret } from '../../src/secret.js';
import { createLogger } from '../../src/http/request-log.js';
import { type Random, systemRandom } from '../../src/random.js';
import { isRefused } from '../../src/refusal.js';
import { createReportWorkers } from '../../src/report-workers.js';
import { createDatabase, type TestDatabase } from './database.js';

/** The real application on a database of its own, listening, with one organization and its administrator. */
export interface TestService {
  readonly app: FastifyInstance;
  readonly database: TestDatabase;
  readonly deps: Deps;
  readonly url: string;
  readonly organizationId: string;
  /** The first administrator's token. */
  readonly token: string;
  /** Everything that was logged. */
  log(): string;
  setStopping(stopping: boolean): void;
  /** The answer's status and body; a 200 is typed, everything else is looked at as a problem. */
  call<N extends TMethodName>(method: N, body: MethodRequest<N>, token?: string): Promise<Answer<N>>;
  /** Fails where the answer is not a 200. */
  done<N extends TMethodName>(method: N, body: MethodRequest<N>, token?: string): Promise<MethodResponse<N>>;
  /** Begins another organization; gives its administrator's token. */
  organization(organizationId: string, principalId?: string): Promise<string>;
  close(): Promise<void>;
}

export interface Answer<N extends TMethodName> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: MethodResponse<N> & IProblemDocument;
}

export interface TestServiceOptions {
  readonly clock?: Clock;
  readonly faults?: FaultHook;
  readonly logLevel?: Config['logLevel'];
  readonly requestTimeoutMs?: number;
  readonly keyRing?: KeyRing;
  readonly random?: Random;
  readonly trustedProxies?: readonly string[];
}

export async function startService(options: TestServiceOptions = {}): Promise<TestService> {
  const database = await createDatabase();
  const deps: Deps = {
    db: database.db,
    clock: options.clock ?? systemClock,
    random: options.random ?? systemRandom,
    faults: options.faults,
  };
  const workers = createReportWorkers({
    url: database.serviceUrl,
    statementTimeoutMs: 15_000,
    lockTimeoutMs: 5_000,
    logLevel: 'silent',
  });
  const lines: string[] = [];
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString());
      done();
    },
  });
  let stopping = false;
  const app = createApp(deps, {
    server: {
      logger: createLogger(options.logLevel ?? 'trace', sink),
      ...(options.requestTimeoutMs === undefined ? {} : { requestTimeoutMs: options.requestTimeoutMs }),
      ...(options.trustedProxies === undefined ? {} : { trustedProxies: options.trustedProxies }),
    },
    takeLargeReport: workers.take,
    keyRing: options.keyRing ?? [{ keyId: 'test', key: new Secret(randomBytes(32).toString('base64')) }],
    process: {
      separation: 'full',
      database: 'embedded',
      migrations: await readMigrations(join(import.meta.dirname, '..', '..', 'migrations')),
      stopping: () => stopping,
    },
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const organization = async (organizationId: string, principalId = 'alice'): Promise<string> => {
    const issued = await bootstrap(deps, { organizationId, principalId, additional: false });
    if (isRefused(issued)) throw new Error(issued.problem.code);
    return issued.token;
  };
  const organizationId = 'acme';
  const token = await organization(organizationId);
  const call: TestService['call'] = (method, body, bearer = token) => post(url, method, body, bearer);
  return {
    app,
    database,
    deps,
    url,
    organizationId,
    token,
    log: () => lines.join(''),
    setStopping: (value) => {
      stopping = value;
    },
    call,
    done: async (method, body, bearer) => {
      const answer = await call(method, body, bearer);
      if (answer.status !== 200) throw new Error(`${method}: ${answer.status} ${JSON.stringify(answer.body)}`);
      return answer.body;
    },
    organization,
    close: async () => {
      await app.close();
      await workers.close();
      await database.drop();
      const undescribed = lines.filter((line) => line.includes('"undescribed problem"'));
      if (undescribed.length > 0) throw new Error(`the API’s description lacks: ${undescribed.join('')}`);
    },
  };
}

async function post<N extends TMethodName>(url: string, method: N, body: unknown, token: string): Promise<Answer<N>> {
  const response = await fetch(url + methodPath(methods[method]), {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(body),
  });
  return { status: response.status, headers: response.headers, body: (await response.json()) as Answer<N>['body'] };
}

let mutations = 0;

/** A fresh mutation id. */
export function mutationId(): string {
  mutations += 1;
  return `m-${mutations}-${randomBytes(6).toString('hex')}`;
}

/** A digest that stands for something that the test does not look at. */
export function someDigest(text: string): `sha256:${string}` {
  return `sha256:${createHash('sha256').update(text).digest('hex')}`;
}
