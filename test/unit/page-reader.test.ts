import { afterEach, describe, expect, it } from 'vitest';
import { TransportError } from '../../src/client/errors.js';
import { createVolatileGenerationMemory, type GenerationMemory } from '../../src/client/generation-memory.js';
import { PageReaderError } from '../../src/client/page-reader-error.js';
import { type PageReaderOptions, readPreparedVolumeHandoffs } from '../../src/client/page-reader.js';
import { createSparkClient, type SparkClient } from '../../src/client/spark-client.js';
import type { ISparkGetFleetCutoverPreparedVolumeHandoffsRequest as PageRequest } from '../../src/contract/handoff.js';
import { refuse } from '../../src/contract/problems.js';
import { referenceOf } from '../../src/contract/schema.js';
import { Secret } from '../../src/secret.js';
import { answerJson, answerProblem, openAnsweringServer } from '../support/answering-server.js';
import { handoffSet, type HandoffSet } from '../support/handoff-set.js';
import { openPageServer, pageAnswer } from '../support/page-server.js';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

function clientOf(url: string, nodeId = 'node-a'): SparkClient {
  const nodeToken = new Secret('t'.repeat(43));
  const client = createSparkClient({ url, nodeId, nodeToken, repetition: { attempts: 2, firstDelayMs: 1 } });
  open.push(client);
  return client;
}

async function serve(set: HandoffSet | null) {
  const server = await openPageServer(set);
  open.push(server);
  return server;
}

function read(url: string, memory: GenerationMemory, more: Partial<PageReaderOptions> & { nodeId?: string } = {}) {
  const { nodeId, ...options } = more;
  return readPreparedVolumeHandoffs({ client: clientOf(url, nodeId), memory, ...options });
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'accepted',
    (error: unknown) => (error instanceof PageReaderError ? error.code : error),
  );

describe('a whole set', () => {
  it.each<{ nodes: Record<string, number>; pages: number }>([
    { nodes: { 'node-a': 1 }, pages: 1 },
    { nodes: { 'node-a': 32 }, pages: 1 },
    { nodes: { 'node-a': 33 }, pages: 2 },
    { nodes: { 'node-a': 40, 'node-b': 30 }, pages: 3 },
  ])('of $nodes is read, $pages pages, each asked for once', async ({ nodes, pages }) => {
    const set = handoffSet({ nodes });
    const server = await serve(set);
    const reading = await read(server.url, createVolatileGenerationMemory());
    expect(reading).toEqual({
      aggregate: set.aggregate,
      pageCount: pages,
      pages: set.pages.map(({ pageIndex, contentDigest, handoffs }) => ({
        pageIndex,
        contentDigest,
        handoffs: handoffs.filter(({ nodeId }) => nodeId === 'node-a').map(referenceOf),
      })),
      referenceCount: set.handoffs.length,
      handoffs: set.handoffs.filter(({ nodeId }) => nodeId === 'node-a'),
      restarts: 0,
    });
    expect(server.requests.map(({ json }) => json['pageIndex']).sort()).toEqual([...Array(pages).keys()]);
  });

  it('gives each node its own part, in page order, across a boundary inside a page', async () => {
    const set = handoffSet({ nodes: { 'node-a': 40, 'node-b': 30 } });
    const server = await serve(set);
    for (const nodeId of ['node-a', 'node-b', 'node-c']) {
      const reading = await read(server.url, createVolatileGenerationMemory(), { nodeId });
      expect(reading.aggregate !== null && reading.handoffs).toEqual(
        set.handoffs.filter((handoff) => handoff.nodeId === nodeId),
      );
    }
  });

  it('pins every page after the first', async () => {
    const set = handoffSet({ nodes: { 'node-a': 70 } });
    const server = await serve(set);
    await read(server.url, createVolatileGenerationMemory());
    const pins = server.requests.map(({ json }) => json['aggregate']);
    expect(pins).toEqual([null, referenceOf(set.aggregate), referenceOf(set.aggregate)]);
  });

  it('is no set where there is none, or where it has no pages', async () => {
    const memory = createVolatileGenerationMemory();
    expect(await read((await serve(null)).url, memory)).toEqual({ aggregate: null, restarts: 0 });
    expect(await read((await serve(handoffSet({ nodes: {} }))).url, memory)).toEqual({ aggregate: null, restarts: 0 });
    expect(await memory.load()).toBeNull();
  });

  it('is asked for with at most so many requests at once', async () => {
    const set = handoffSet({ nodes: { 'node-a': 320 } });
    let running = 0;
    let most = 0;
    const server = await openAnsweringServer(async (received, response) => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setTimeout(resolve, 15));
      running -= 1;
      answerJson(response, pageAnswer(set, received.json as unknown as PageRequest));
    });
    open.push(server);
    await read(server.url, createVolatileGenerationMemory(), { concurrency: 3 });
    expect(most).toBe(3);
  });
});

describe('the memory of generations', () => {
  it('lets the set rise and refuses to be led back', async () => {
    const memory = createVolatileGenerationMemory();
    const server = await serve(handoffSet({ nodes: { 'node-a': 3 }, generation: 5 }));
    await read(server.url, memory);
    server.current = handoffSet({ nodes: { 'node-a': 4 }, generation: 7 });
    await read(server.url, memory);
    await read(server.url, memory);
    server.current = handoffSet({ nodes: { 'node-a': 3 }, generation: 6 });
    expect(await codeOf(read(server.url, memory))).toBe('generation-led-back');
    expect((await memory.load())?.aggregate.generation).toBe(7);
  });

  it('refuses another content under the same generation', async () => {
    const memory = createVolatileGenerationMemory();
    const server = await serve(handoffSet({ nodes: { 'node-a': 3 }, generation: 5 }));
    await read(server.url, memory);
    server.current = handoffSet({ nodes: { 'node-a': 4 }, generation: 5 });
    expect(await codeOf(read(server.url, memory))).toBe('generation-forked');
  });

  it('follows a restored cluster to its new id and never back to the old one', async () => {
    const memory = createVolatileGenerationMemory();
    const before = handoffSet({ nodes: { 'node-a': 3 }, generation: 5 });
    const server = await serve(before);
    await read(server.url, memory);
    server.current = handoffSet({ nodes: { 'node-a': 3 }, aggregateId: 'ha-2' });
    await read(server.url, memory);
    server.current = handoffSet({ nodes: { 'node-a': 3 }, generation: 9 });
    expect(await codeOf(read(server.url, memory))).toBe('generation-led-back');
  });

  it('refuses another cluster', async () => {
    const memory = createVolatileGenerationMemory();
    const server = await serve(handoffSet({ nodes: { 'node-a': 3 } }));
    await read(server.url, memory);
    server.current = handoffSet({ nodes: { 'node-a': 3 }, clusterId: 'cluster-2', aggregateId: 'ha-9' });
    expect(await codeOf(read(server.url, memory))).toBe('cluster-changed');
  });

  it('is asked again when the pages are read: a newer set accepted meanwhile stays', async () => {
    const memory = createVolatileGenerationMemory();
    const newer = await serve(handoffSet({ nodes: { 'node-a': 3 }, generation: 8 }));
    const older = await serve(handoffSet({ nodes: { 'node-a': 40 }, generation: 7 }));
    let done = false;
    const client = clientOf(older.url);
    const overtaken: PageReaderOptions['client'] = {
      getPreparedVolumeHandoffs: async (...args) => {
        if (args[0] !== null && !done) {
          done = true;
          await read(newer.url, memory);
        }
        return await client.getPreparedVolumeHandoffs(...args);
      },
    };
    expect(await codeOf(readPreparedVolumeHandoffs({ client: overtaken, memory }))).toBe('generation-led-back');
    expect((await memory.load())?.aggregate.generation).toBe(8);
  });

  it('that cannot be told accepts nothing', async () => {
    const server = await serve(handoffSet({ nodes: { 'node-a': 3 } }));
    const broken: GenerationMemory = {
      load: () => Promise.reject(new Error('the disk is gone')),
      update: () => Promise.resolve(),
    };
    await expect(read(server.url, broken)).rejects.toThrow('the disk is gone');
  });
});

describe('a pin', () => {
  it('that expires begins the reading anew from what is current, and is told', async () => {
    const old = handoffSet({ nodes: { 'node-a': 40 } });
    const current = handoffSet({ nodes: { 'node-a': 41 }, generation: 2 });
    const server = await openAnsweringServer((received, response) => {
      const request = received.json as unknown as PageRequest;
      if (received.count === 1) return answerJson(response, pageAnswer(old, request));
      if (received.count === 2) {
        return answerProblem(response, refuse('pin-expired', { current: referenceOf(current.aggregate) }).problem);
      }
      return answerJson(response, pageAnswer(current, request));
    });
    open.push(server);
    const reading = await read(server.url, createVolatileGenerationMemory());
    expect(reading.aggregate?.generation).toBe(2);
    expect(reading.restarts).toBe(1);
  });

  it('that always expires ends the reading', async () => {
    const set = handoffSet({ nodes: { 'node-a': 40 } });
    const server = await openAnsweringServer((received, response) => {
      const request = received.json as unknown as PageRequest;
      if (request.aggregate === null) return answerJson(response, pageAnswer(set, request));
      return answerProblem(response, refuse('pin-expired', { current: referenceOf(set.aggregate) }).problem);
    });
    open.push(server);
    expect(await codeOf(read(server.url, createVolatileGenerationMemory(), { maximumRestarts: 2 }))).toBe(
      'pin-expired',
    );
    expect(server.requests).toHaveLength(6);
  });

  it('that the service does not know ends the reading', async () => {
    const set = handoffSet({ nodes: { 'node-a': 40 } });
    const server = await openAnsweringServer((received, response) => {
      const request = received.json as unknown as PageRequest;
      if (request.aggregate === null) return answerJson(response, pageAnswer(set, request));
      return answerProblem(response, refuse('pin-unknown').problem);
    });
    open.push(server);
    const memory = createVolatileGenerationMemory();
    expect(await codeOf(read(server.url, memory))).toBe('pin-unknown');
    expect(await memory.load()).toBeNull();
  });
});

describe('a reading', () => {
  it('ends with the caller’s signal and remembers nothing', async () => {
    const set = handoffSet({ nodes: { 'node-a': 320 } });
    const server = await serve(set);
    const ending = new AbortController();
    server.tamper = (_answer, request) => void (request.pageIndex === 3 && ending.abort());
    const memory = createVolatileGenerationMemory();
    const error = await codeOf(read(server.url, memory, { signal: ending.signal }));
    expect(error).toBeInstanceOf(TransportError);
    expect((error as TransportError).code).toBe('aborted');
    expect(await memory.load()).toBeNull();
    expect(server.requests.length).toBeLessThan(10);
  });

  it('survives a connection that is cut once', async () => {
    const set = handoffSet({ nodes: { 'node-a': 70 } });
    const server = await openAnsweringServer((received, response) => {
      if (received.count === 2) return void response.destroy();
      return answerJson(response, pageAnswer(set, received.json as unknown as PageRequest));
    });
    open.push(server);
    const reading = await read(server.url, createVolatileGenerationMemory());
    expect(reading.aggregate).toEqual(set.aggregate);
  });
});
