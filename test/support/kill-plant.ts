/**
 * Loaded before the service, breaks it on purpose: what an oracle finds nothing wrong with has to be shown to be able to
 * find something. `FAULT_PLANT` is `lost`, `doubled` or `serverError`.
 */
import { subscribe } from 'node:diagnostics_channel';
import type { FastifyInstance } from 'fastify';
import pg from 'pg';

/** One in so many is broken, the first one too: on a slow machine a process that is killed again does not live for many. */
const EVERY = 4;

let passed = 0;

function isNext(): boolean {
  passed += 1;
  return passed % EVERY === 1;
}

type Callback = (error: unknown, result?: { command: string }) => void;

/** Rolls back and says that it has committed. */
function loseCommits(): void {
  const client = pg.Client.prototype as unknown as { query(...args: unknown[]): unknown };
  const query = client.query;
  client.query = function lose(this: unknown, ...args: unknown[]): unknown {
    const [text, callback] = args;
    if (text !== 'COMMIT' || typeof callback !== 'function' || !isNext()) return query.apply(this, args);
    const answer: Callback = (error, result) =>
      (callback as Callback)(error, result && { ...result, command: 'COMMIT' });
    return query.call(this, 'ROLLBACK', answer);
  };
}

interface Prepare {
  mutationId: string;
  expectedAggregate: unknown;
}

/** Does a mutation of handoffs once more under an id that nobody has sent. */
function doubleMutations(app: FastifyInstance): void {
  app.addHook('onSend', async (request, reply, payload) => {
    const isPrepare = request.url.endsWith('/prepareFleetCutoverVolumeHandoffs') && reply.statusCode === 200;
    if (!isPrepare || request.headers['x-planted'] !== undefined || !isNext()) return payload;
    const body = JSON.parse(String(request.body)) as Prepare;
    const { aggregate } = JSON.parse(String(payload)) as {
      aggregate: { id: string; generation: number; digest: string };
    };
    const { id, generation, digest } = aggregate;
    body.mutationId = `${body.mutationId}-planted`;
    body.expectedAggregate = { id, generation, digest };
    const { authorization = '' } = request.headers;
    const headers = { authorization, 'content-type': 'application/json', 'x-planted': '1' };
    await app.inject({ method: 'POST', url: request.url, headers, payload: JSON.stringify(body) });
    return payload;
  });
}

function failRequests(app: FastifyInstance): void {
  app.addHook('onRequest', async () => {
    if (isNext()) throw new Error('planted');
  });
}

function onApp(plant: (app: FastifyInstance) => void): void {
  subscribe('fastify.initialization', (message) => plant((message as { fastify: FastifyInstance }).fastify));
}

switch (process.env['FAULT_PLANT'] ?? '') {
  case 'lost':
    loseCommits();
    break;
  case 'doubled':
    onApp(doubleMutations);
    break;
  case 'serverError':
    onApp(failRequests);
    break;
  default:
    throw new Error('FAULT_PLANT is lost, doubled or serverError');
}
