import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { createSparkAgent } from '../../src/agents/spark/agent.js';
import { createGenerationFile } from '../../src/agents/spark/generation-file.js';
import type { SparkEvent } from '../../src/agents/spark/log.js';
import { runSparkLoop } from '../../src/agents/spark/loop.js';
import { nextStepAfter } from '../../src/agents/spark/next-step.js';
import { openSparkState } from '../../src/agents/spark/spark-state.js';
import { StateFileError } from '../../src/agents/spark/state-file.js';
import { ContractViolationError, ProblemError, TransportError } from '../../src/client/errors.js';
import { acceptGeneration } from '../../src/client/generation-memory.js';
import { PageReaderError } from '../../src/client/page-reader-error.js';
import { createSparkClient } from '../../src/client/spark-client.js';
import { systemClock } from '../../src/clock.js';
import type { ISparkGetFleetCutoverPreparedVolumeHandoffsRequest as PageRequest } from '../../src/contract/handoff.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { problemDocument, refuse, type TProblemCode } from '../../src/contract/problems.js';
import { referenceOf } from '../../src/contract/schema.js';
import { systemRandom } from '../../src/random.js';
import { Secret } from '../../src/secret.js';
import {
  answerJson,
  type Answering,
  answerProblem,
  openAnsweringServer,
  type ReceivedRequest,
} from '../support/answering-server.js';
import { handoffSet, type HandoffSet, referenceNamed } from '../support/handoff-set.js';
import { nothing, pageAnswer } from '../support/page-server.js';
import { observationOf, receiptOf } from '../support/spark-receipt.js';

let directory: string;
const open: { close(): Promise<void> }[] = [];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-spark-'));
});
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
  await rm(directory, { recursive: true });
});

interface Cloudly {
  set: HandoffSet | null;
  runtime: number;
  /** Answers a report in another way; false leaves it to the usual one. */
  report: (request: ReceivedRequest, response: Parameters<Answering>[1]) => boolean;
}

async function openCloudly() {
  const cloudly: Cloudly = { set: null, runtime: 1, report: () => false };
  const server = await openAnsweringServer((request, response) => {
    if (request.path === sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint) {
      const asked = request.json as unknown as PageRequest;
      return answerJson(response, cloudly.set === null ? nothing(asked) : pageAnswer(cloudly.set, asked));
    }
    if (cloudly.report(request, response)) return;
    const accepted = { state: 'accepted', reference: referenceNamed('ls-1') } as const;
    return answerJson(
      response,
      receiptOf(request, {
        runtime: referenceNamed('rt-1', cloudly.runtime),
        localSnapshot: accepted,
        managerSnapshot: accepted,
      }),
    );
  });
  open.push(server);
  const reports = () =>
    server.requests.filter(({ path }) => path === sparkSwarmNodeContracts.swarmObservation.endpoint);
  return { cloudly, server, reports };
}

function runtimeNamedBy(request: ReceivedRequest) {
  const observation = observationOf(request);
  return observation.state === 'member' ? observation.fleetCutoverLocalNodeSnapshot?.runtime : undefined;
}

function agentOf(url: string, log: (event: SparkEvent) => void = () => {}) {
  const client = createSparkClient({
    url,
    nodeId: 'node-a',
    nodeToken: new Secret('t'.repeat(43)),
    repetition: { attempts: 2, firstDelayMs: 1 },
  });
  open.push(client);
  const { digest } = referenceNamed('spark');
  return createSparkAgent({
    client,
    source: capturedSource(join(import.meta.dirname, '..', 'fixtures', 'swarm', 'manager')),
    state: openSparkState(directory),
    facts: {
      spark: { bundleDigest: digest, unitDigest: digest, configurationDigest: digest, oldModeRefused: true },
      pallet: null,
    },
    clock: systemClock,
    random: systemRandom,
    log,
  });
}

describe('one round', () => {
  it('reports, looks again under the runtime that the receipt names, and keeps the proved handoffs', async () => {
    const { cloudly, server, reports } = await openCloudly();
    cloudly.set = handoffSet({ nodes: { 'node-a': 40, 'node-b': 3 } });
    const run = await agentOf(server.url).runOnce();
    expect(reports().map(runtimeNamedBy)).toEqual([null, referenceNamed('rt-1')]);
    expect(reports().map((request) => observationOf(request).observationSequence)).toEqual([1, 2]);
    expect(observationOf(reports()[1]!)).toMatchObject({
      state: 'member',
      controlAvailable: true,
      fleetCutoverLocalNodeSnapshot: { complete: true },
      fleetCutoverManagerSnapshot: { complete: true },
    });
    expect(run.handoffs).toEqual({
      aggregate: cloudly.set.aggregate,
      handoffs: cloudly.set.handoffs.filter(({ nodeId }) => nodeId === 'node-a'),
    });
    expect(await openSparkState(directory).loadHandoffs()).toEqual(run.handoffs);
  });

  it('keeps the handoffs while there is no complete set', async () => {
    const { cloudly, server } = await openCloudly();
    const agent = agentOf(server.url);
    expect((await agent.runOnce()).handoffs).toBeNull();
    cloudly.set = handoffSet({ nodes: { 'node-a': 2 } });
    const kept = (await agent.runOnce()).handoffs;
    cloudly.set = null;
    expect((await agent.runOnce()).handoffs).toEqual(kept);
  });

  it('of a new process begins a new session, names the remembered runtime and is not led back', async () => {
    const { cloudly, server, reports } = await openCloudly();
    cloudly.set = handoffSet({ nodes: { 'node-a': 2 }, generation: 4 });
    const before = await agentOf(server.url).runOnce();
    const count = reports().length;
    cloudly.set = handoffSet({ nodes: { 'node-a': 3 }, generation: 3 });
    await expect(agentOf(server.url).runOnce()).rejects.toMatchObject({ code: 'generation-led-back' });
    const [first] = reports().slice(count);
    expect(runtimeNamedBy(first!)).toEqual(referenceNamed('rt-1'));
    expect(observationOf(first!).observationSequence).toBe(1);
    expect(observationOf(first!).reporterSessionId).not.toBe(observationOf(reports()[0]!).reporterSessionId);
    expect(await openSparkState(directory).loadHandoffs()).toEqual(before.handoffs);
  });

  it('sends a report whose answer was lost again, byte for byte, before the next one', async () => {
    const { cloudly, server, reports } = await openCloudly();
    const agent = agentOf(server.url);
    await agent.runOnce();
    const count = reports().length;
    cloudly.report = (_request, response) => {
      response.destroy();
      return true;
    };
    await expect(agent.runOnce()).rejects.toMatchObject({ code: 'connection-lost', outcome: 'unknown' });
    cloudly.report = () => false;
    await agent.runOnce();
    const [lost, again, repeated, next, ...more] = reports().slice(count);
    expect(again?.body).toEqual(lost?.body);
    expect(repeated?.body).toEqual(lost?.body);
    expect(observationOf(next!).observationSequence).toBe(observationOf(lost!).observationSequence + 1);
    expect(more).toEqual([]);
  });

  it('does not repeat what was refused', async () => {
    const { cloudly, server, reports } = await openCloudly();
    const agent = agentOf(server.url);
    cloudly.report = (_request, response) => {
      answerProblem(response, refuse('swarm-mismatch').problem);
      return true;
    };
    await expect(agent.runOnce()).rejects.toMatchObject({ code: 'swarm-mismatch' });
    cloudly.report = () => false;
    await agent.runOnce();
    expect(reports().map((request) => observationOf(request).observationSequence)).toEqual([1, 2, 3]);
  });
});

describe('the loop', () => {
  const loop = (agent: ReturnType<typeof agentOf>, signal: AbortSignal, log: (event: SparkEvent) => void = () => {}) =>
    runSparkLoop(agent, { random: systemRandom, log, signal, intervalMs: 5, maximumBackOffMs: 20 });

  it('goes on until its signal', async () => {
    const { cloudly, server, reports } = await openCloudly();
    const ending = new AbortController();
    cloudly.report = ({ count }) => {
      if (count > 8) ending.abort();
      return false;
    };
    await loop(agentOf(server.url), ending.signal);
    expect(reports().length).toBeGreaterThan(3);
  });

  it('backs off as long as Retry-After says and then goes on', async () => {
    const { cloudly, server } = await openCloudly();
    const ending = new AbortController();
    const times: number[] = [];
    cloudly.report = ({ count }, response) => {
      times.push(performance.now());
      if (count === 1) answerProblem(response, refuse('rate-limited').problem, { 'retry-after': '1' });
      else ending.abort();
      return count === 1;
    };
    const events: SparkEvent[] = [];
    await loop(agentOf(server.url), ending.signal, (event) => events.push(event));
    expect(times[1]! - times[0]!).toBeGreaterThan(990);
    expect(events).toContainEqual(expect.objectContaining({ event: 'failed', reason: 'rate-limited', failures: 1 }));
  });

  it.each<TProblemCode>([
    'node-quarantined',
    'node-revoked',
    'reporter-replaced',
    'credential-refused',
    'protocol-unsupported',
  ])('stops on %s and says so', async (code) => {
    const { cloudly, server, reports } = await openCloudly();
    cloudly.report = (_request, response) => {
      answerProblem(response, refuse(code).problem);
      return true;
    };
    const events: SparkEvent[] = [];
    const running = loop(agentOf(server.url), new AbortController().signal, (event) => events.push(event));
    await expect(running).rejects.toMatchObject({ code });
    expect(events).toEqual([{ level: 'error', event: 'stopped', reason: code }]);
    expect(reports()).toHaveLength(1);
  });
});

describe('the next step', () => {
  const problem = (code: TProblemCode) => new ProblemError(problemDocument(refuse(code).problem), null);
  it.each<[string, unknown, 'stop' | 'back-off']>([
    ['unavailable', problem('unavailable'), 'back-off'],
    ['rate-limited', problem('rate-limited'), 'back-off'],
    ['swarm-node-taken', problem('swarm-node-taken'), 'back-off'],
    ['swarm-node-changed', problem('swarm-node-changed'), 'back-off'],
    ['sequence-stale', problem('sequence-stale'), 'stop'],
    ['a lost answer', new TransportError('connection-lost', { outcome: 'unknown' }), 'back-off'],
    [
      'a lost answer, then a quarantine',
      new TransportError('outcome-unresolved', { outcome: 'unknown', cause: problem('node-quarantined') }),
      'stop',
    ],
    ['a refused set', new PageReaderError('set-digest-wrong'), 'back-off'],
    ['a malformed answer', new ContractViolationError(['x']), 'back-off'],
    ['a state that cannot be read', new StateFileError('x'), 'stop'],
  ])('after %s', (_what, error, kind) => {
    expect(nextStepAfter(error).kind).toBe(kind);
  });
});

describe('the memory as a file', () => {
  const aggregateOf = (generation: number) => handoffSet({ nodes: { 'node-a': 1 }, generation }).aggregate;

  it('survives the process, is only its owner’s, and leaves nothing unfinished', async () => {
    const path = join(directory, 'deep', 'generations.json');
    const memory = createGenerationFile(path);
    expect(await memory.load()).toBeNull();
    await memory.update((accepted) => acceptGeneration(accepted, aggregateOf(3)));
    expect((await createGenerationFile(path).load())?.aggregate).toEqual(referenceOf(aggregateOf(3)));
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await stat(join(directory, 'deep'))).mode & 0o777).toBe(0o700);
    expect(await readdir(join(directory, 'deep'))).toEqual(['generations.json']);
  });

  it('makes one change after the other', async () => {
    const memory = createGenerationFile(join(directory, 'generations.json'));
    const seen: (number | null)[] = [];
    await Promise.all(
      [1, 2, 3, 4].map((generation) =>
        memory.update((accepted) => {
          seen.push(accepted?.aggregate.generation ?? null);
          return acceptGeneration(accepted, aggregateOf(generation));
        }),
      ),
    );
    expect(seen).toEqual([null, 1, 2, 3]);
    const refused = memory.update(() => {
      throw new Error('led back');
    });
    await expect(refused).rejects.toThrow('led back');
    expect((await memory.load())?.aggregate.generation).toBe(4);
  });

  it.each(['', '{}', '{"clusterId":"c"', 'null'])('that holds %j is not taken for none', async (text) => {
    const path = join(directory, 'generations.json');
    await writeFile(path, text);
    const memory = createGenerationFile(path);
    await expect(memory.load()).rejects.toThrow(StateFileError);
    await expect(memory.update((accepted) => acceptGeneration(accepted, aggregateOf(1)))).rejects.toThrow(
      StateFileError,
    );
    expect(await readFile(path, 'utf8')).toBe(text);
  });
});
