import { Type } from '@sinclair/typebox';
import { describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { collectLocalSnapshot } from '../../src/agents/docker/collect-local-snapshot.js';
import { engineSource } from '../../src/agents/docker/engine-source.js';
import { observeNode } from '../../src/agents/docker/observe-node.js';
import { answerOf } from '../../src/agents/docker/source.js';
import { capturedDirectory, engineSocket, editedCapture, replay, sparkFacts } from '../support/docker-engine.js';

const noDeadline = new AbortController().signal;
const version = (ApiVersion: string, MinAPIVersion?: string) => ({
  status: 200,
  body: JSON.stringify({ ApiVersion, MinAPIVersion }),
});
const list = (...ids: string[]) => ({ status: 200, body: JSON.stringify(ids.map((Id) => ({ Id }))) });

describe('a live engine', () => {
  it.each(['manager', 'worker'] as const)('gives the same observation as its captured answers: %s', async (node) => {
    const answer = await replay(node);
    const live = await observeNode(engineSource({ socketPath: await engineSocket(answer) }), sparkFacts);
    expect(live).toEqual(await observeNode(capturedSource(capturedDirectory(node)), sparkFacts));
    expect(live).toMatchObject({ state: 'member', fleetCutoverLocalNodeSnapshot: { complete: true } });
  });

  it.each([
    ['1.41', '1.12', '/v1.41/'],
    ['1.52', '1.44', '/v1.44/'],
    ['1.51', '1.24', '/v1.41/'],
    ['1.40', '1.12', '/v1.40/'],
    ['1.9', undefined, '/v1.9/'],
    ['1.100', '1.99', '/v1.99/'],
  ])('is asked in the nearest version that it has: %s down to %s', async (newest, oldest, prefix) => {
    const paths: string[] = [];
    const socketPath = await engineSocket((path) => {
      paths.push(path);
      return path === '/version' ? version(newest, oldest) : list();
    });
    const source = engineSource({ socketPath });
    await source.containerIds(noDeadline);
    await source.containerIds(noDeadline);
    expect(paths).toEqual(['/version', `${prefix}containers/json?all=1`, `${prefix}containers/json?all=1`]);
  });

  it('is asked for its version anew after it refused one', async () => {
    let newest = '1.41';
    const socketPath = await engineSocket((path) => {
      if (path === '/version') return version(newest, newest);
      return path.startsWith(`/v${newest}/`)
        ? list()
        : { status: 400, body: '{"message":"client version is too old"}' };
    });
    const source = engineSource({ socketPath });
    expect(await source.containerIds(noDeadline)).toEqual([]);
    newest = '1.44';
    await expect(source.containerIds(noDeadline)).rejects.toMatchObject({ reason: 'engine-error' });
    expect(await source.containerIds(noDeadline)).toEqual([]);
  });

  it.each(['nonsense', '1.41/../../images', ''])('with an impossible version is an error: %s', async (ApiVersion) => {
    const source = engineSource({ socketPath: await engineSocket(() => version(ApiVersion)) });
    await expect(source.info(noDeadline)).rejects.toMatchObject({ reason: 'engine-error' });
  });

  it('is not reached', async () => {
    const source = engineSource({ socketPath: '/nonexistent/docker.sock' });
    await expect(source.info(noDeadline)).rejects.toMatchObject({
      reason: 'engine-unreachable',
      message: 'GET /version: ENOENT',
    });
    expect(await observeNode(source, sparkFacts)).toEqual({ state: 'unknown', reason: 'docker-unreachable' });
  });

  it('breaks off in the middle of an answer', async () => {
    const socketPath = await engineSocket((path, response) => {
      if (path === '/version') return version('1.41');
      response.writeHead(200, { 'content-length': 100 });
      response.write('[');
      setTimeout(() => response.destroy(), 20);
      return undefined;
    });
    await expect(engineSource({ socketPath }).containerIds(noDeadline)).rejects.toMatchObject({
      reason: 'engine-unreachable',
    });
  });

  it('does not answer in time, or not to the end', async () => {
    const silent = await engineSocket(() => undefined);
    const source = engineSource({ socketPath: silent, requestTimeoutMs: 50 });
    await expect(source.info(noDeadline)).rejects.toMatchObject({ reason: 'timeout' });
    expect(await observeNode(source, sparkFacts)).toEqual({ state: 'unknown', reason: 'timeout' });

    const slow = await engineSocket((path, response) => {
      if (path === '/version') return version('1.41');
      response.writeHead(200);
      response.write('[');
      return undefined;
    });
    await expect(engineSource({ socketPath: slow, requestTimeoutMs: 50 }).tasks(noDeadline)).rejects.toMatchObject({
      reason: 'timeout',
    });
  });

  it("ends with the caller's signal", async () => {
    const source = engineSource({ socketPath: await engineSocket(() => undefined) });
    await expect(source.info(AbortSignal.timeout(30))).rejects.toMatchObject({ reason: 'timeout' });
    await expect(source.info(AbortSignal.abort())).rejects.toMatchObject({ reason: 'timeout' });
  });

  it('answers more than is read', async () => {
    let closed: Promise<void> | undefined;
    const socketPath = await engineSocket((path, response) => {
      if (path === '/version') return version('1.41');
      closed = new Promise((resolve) => response.on('close', () => resolve()));
      const pump = () => {
        while (!response.destroyed && response.write(`"${'x'.repeat(16_384)}",`));
        if (!response.destroyed) response.once('drain', pump);
      };
      response.writeHead(200);
      pump();
      return undefined;
    });
    const source = engineSource({ socketPath, maximumAnswerBytes: 100_000 });
    await expect(source.tasks(noDeadline)).rejects.toMatchObject({ reason: 'truncated' });
    await closed;
  });

  it('fails without a word of its answer in the error', async () => {
    const socketPath = await engineSocket((path) =>
      path === '/version' ? version('1.41') : { status: 500, body: '{"message":"password=hunter2"}' },
    );
    const error: unknown = await engineSource({ socketPath })
      .tasks(noDeadline)
      .catch((failure: unknown) => failure);
    expect(error).toMatchObject({ reason: 'engine-error', message: 'GET /tasks answered 500' });
  });

  it('is the one that the caller names, whatever DOCKER_HOST says', async () => {
    const before = process.env['DOCKER_HOST'];
    process.env['DOCKER_HOST'] = 'tcp://127.0.0.1:1';
    try {
      const socketPath = await engineSocket((path) => (path === '/version' ? version('1.41') : list('a')));
      expect(await engineSource({ socketPath }).containerIds(noDeadline)).toEqual(['a']);
    } finally {
      if (before === undefined) delete process.env['DOCKER_HOST'];
      else process.env['DOCKER_HOST'] = before;
    }
  });
});

describe('a container that vanishes between the list and its inspect', () => {
  const standalone = 'b1167db2b3ff4b88ebf680684dd827ba27bbd35d48cc22dd82105e19b83d0a22';
  const collect = (socketPath: string) =>
    collectLocalSnapshot(engineSource({ socketPath }), { ...sparkFacts, controlAvailable: false });

  /** The captured manager, of which one container is gone since its first list, and another is there since then. */
  const changing = async (lists: (all: string[], round: number) => string[]) => {
    const captured = await replay('manager');
    let round = 0;
    return engineSocket(async (path) => {
      if (path.endsWith(`/${standalone}/json`)) return { status: 404, body: '{"message":"No such container"}' };
      const answer = await captured(path);
      if (!path.includes('/containers/json')) return answer;
      const all = (JSON.parse(answer.body) as { Id: string }[]).map((one) => one.Id);
      return list(...lists(all, ++round));
    });
  };

  it('is dropped when the next list has dropped it', async () => {
    const snapshot = await collect(
      await changing((all, round) => (round === 1 ? all.slice(1) : all.filter((id) => id !== standalone))),
    );
    if (!snapshot.complete) throw new Error(snapshot.reason);
    expect(snapshot.containers).toHaveLength(38);
    expect(snapshot.containers.some((one) => one.id === standalone)).toBe(false);
    // The first of the list was missing in round one.
    expect(snapshot.containers.some((one) => one.name === 'crashy.1.sw08h80af3uzviyimdjcqsd5m')).toBe(true);
  });

  it('is inconsistent when every list still has it', async () => {
    expect(await collect(await changing((all) => all))).toMatchObject({
      complete: false,
      reason: 'inconsistent',
      counts: { containers: 39 },
    });
  });

  it('may be another one that was inspected and vanished then', async () => {
    const crashy = 'a17a74926e94df8022d78b4df1c35d83c819f2d5974bfae8419febf795dd9040';
    const snapshot = await collect(
      await changing((all, round) => (round === 1 ? all : all.filter((id) => id !== standalone && id !== crashy))),
    );
    expect(snapshot.complete && snapshot.containers.length).toBe(37);
  });
});

it("tells where an answer has an unknown shape without the answer's own keys", () => {
  const answer = answerOf(Type.Object({ Labels: Type.Object({}, { additionalProperties: Type.String() }) }));
  expect(answer({ Labels: { a: 'x' } })).toBeNull();
  expect(answer({ Labels: { hunter2: 1 } })).toBe('/Labels/*');
  expect(answer([])).toBe('/');
});

describe('a captured engine', () => {
  it('reads nothing outside its directory', async () => {
    const directory = await editedCapture('worker', (edit) =>
      edit('index.json', () => [{ path: '/v1.41/info', file: '../info.json', status: 200 }]),
    );
    await expect(capturedSource(directory).info(noDeadline)).rejects.toMatchObject({ reason: 'engine-error' });
  });

  it('has no container that was not captured', async () => {
    expect(await capturedSource(capturedDirectory('worker')).container('nobody', noDeadline)).toBeNull();
  });
});
