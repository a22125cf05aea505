import { inspect } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { ContractViolationError, ProblemError } from '../../src/client/errors.js';
import { createSparkClient } from '../../src/client/spark-client.js';
import { maximumObservationCensusBytes, sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { ISparkSwarmObservationAcceptedReceipt, TSparkSwarmObservation } from '../../src/contract/observation.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import { refuse } from '../../src/contract/problems.js';
import { ContractError } from '../../src/contract/record.js';
import { Secret } from '../../src/secret.js';
import {
  answerJson,
  type Answering,
  answerProblem,
  answerText,
  openAnsweringServer,
} from '../support/answering-server.js';
import { referenceNamed } from '../support/handoff-set.js';
import { receiptOf } from '../support/spark-receipt.js';

const canary = 'canary'.padEnd(43, 'x');

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

async function serve(answering: Answering) {
  const server = await openAnsweringServer(answering);
  const nodeToken = new Secret(canary);
  const repetition = { attempts: 3, firstDelayMs: 1 };
  const client = createSparkClient({ url: server.url, nodeId: 'node-a', nodeToken, repetition });
  open.push(server, client);
  return { server, client };
}

const observation: TSparkSwarmObservation = {
  reporterSessionId: 'rs-1',
  observationSequence: 1,
  observedAt: 1,
  state: 'unknown',
  reason: 'docker-unreachable',
};

const thrown = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

/** An observation whose whole request has exactly so many bytes. */
function censusOf(bytes: number): TSparkSwarmObservation {
  const volume = (mountpoint: string, index: number) => ({
    name: `v${index}`,
    driver: 'local',
    options: null,
    mountpoint,
  });
  const padded = (paddings: string[]): TSparkSwarmObservation => ({
    reporterSessionId: 'rs-1',
    observationSequence: 1,
    observedAt: 1,
    state: 'inactive',
    fleetCutoverLocalNodeSnapshot: {
      complete: true,
      runtime: null,
      containers: [],
      volumes: paddings.map(volume),
      ports: [],
      pallet: null,
      spark: {
        bundleDigest: referenceNamed('a').digest,
        unitDigest: referenceNamed('a').digest,
        configurationDigest: referenceNamed('a').digest,
        oldModeRefused: true,
      },
    },
  });
  const sizeOf = (each: TSparkSwarmObservation) =>
    JSON.stringify({ nodeId: 'node-a', nodeToken: canary, protocol: supportedProtocol, observation: each }).length;
  const paddings = Array.from({ length: Math.floor((bytes - 2000) / 4200) }, () => 'x'.repeat(4096));
  let missing = bytes - sizeOf(padded(paddings));
  while (missing > 0) {
    const empty = sizeOf(padded([...paddings, ''])) - sizeOf(padded(paddings));
    paddings.push('x'.repeat(Math.min(4096, Math.max(0, missing - empty))));
    missing = bytes - sizeOf(padded(paddings));
    if (missing > 0 && missing < 200) {
      paddings[0] = (paddings[0] as string).slice(0, -(200 - missing)); // leave room for one more volume
      missing = bytes - sizeOf(padded(paddings));
    }
  }
  expect(sizeOf(padded(paddings))).toBe(bytes);
  return padded(paddings);
}

describe('a report', () => {
  it('goes to the endpoint with the node’s identity and the offer, and gives the receipt', async () => {
    const { server, client } = await serve((request, response) => answerJson(response, receiptOf(request)));
    expect(await client.reportObservation(observation)).toMatchObject({
      state: 'accepted',
      runtime: referenceNamed('rt-1'),
    });
    const [request] = server.requests;
    expect(request?.path).toBe(sparkSwarmNodeContracts.swarmObservation.endpoint);
    expect(request?.json).toEqual({ nodeId: 'node-a', nodeToken: canary, protocol: supportedProtocol, observation });
    expect(request?.headers.authorization).toBeUndefined();
  });

  it('whose answer is lost is repeated byte for byte, in the call and by a later one', async () => {
    const { server, client } = await serve((request, response) =>
      request.count === 1 ? void response.destroy() : answerJson(response, receiptOf(request)),
    );
    await client.reportObservation(observation);
    await client.reportObservation(Object.fromEntries(Object.entries(observation).reverse()) as TSparkSwarmObservation);
    expect(server.requests).toHaveLength(3);
    for (const { body } of server.requests) expect(body).toEqual(server.requests[0]?.body);
  });

  it('is sent up to its byte limit and not beyond', async () => {
    const { server, client } = await serve((request, response) => answerJson(response, receiptOf(request)));
    await client.reportObservation(censusOf(maximumObservationCensusBytes));
    expect(server.requests[0]?.body).toHaveLength(maximumObservationCensusBytes);
    const error = await thrown(client.reportObservation(censusOf(maximumObservationCensusBytes + 1)));
    expect(error).toBeInstanceOf(ContractError);
    expect(server.requests).toHaveLength(1);
  });

  it('has a budget for held fences beside that of the census', async () => {
    const { server, client } = await serve((request, response) => answerJson(response, receiptOf(request)));
    const evidence = {
      aggregate: referenceNamed('ha-1'),
      pageIndex: 0,
      contentDigest: referenceNamed('page').digest,
      nodeId: 'node-a',
      fences: [],
    };
    const member = ',"fleetCutoverHeldVolumeFences":'.length;
    const full = censusOf(maximumObservationCensusBytes - member);
    await client.reportObservation({ ...full, fleetCutoverHeldVolumeFences: evidence });
    expect(server.requests[0]?.body).toHaveLength(maximumObservationCensusBytes + JSON.stringify(evidence).length);
    const more = { ...censusOf(maximumObservationCensusBytes - member + 1), fleetCutoverHeldVolumeFences: evidence };
    expect(await thrown(client.reportObservation(more))).toBeInstanceOf(ContractError);
    expect(server.requests).toHaveLength(1);
  });

  it('that the contract does not allow is not sent', async () => {
    const { server, client } = await serve((request, response) => answerJson(response, receiptOf(request)));
    const wrong: object[] = [
      { ...observation, observationSequence: 0 },
      { ...observation, more: 1 },
      { state: 'member' },
    ];
    for (const each of wrong) {
      expect(await thrown(client.reportObservation(each as TSparkSwarmObservation))).toBeInstanceOf(ContractError);
    }
    expect(server.requests).toHaveLength(0);
  });

  it.each<[string, Partial<ISparkSwarmObservationAcceptedReceipt>]>([
    ['another node', { nodeId: 'node-b' }],
    ['another session', { reporterSessionId: 'rs-2' }],
    ['another sequence', { observationSequence: 2 }],
    ['another major', { protocol: { major: 31, minor: 0 } }],
    ['a minor that was not offered', { protocol: { major: 32, minor: 16 } }],
    ['an unknown member', { more: 1 } as never],
  ])('refuses a receipt of %s', async (_what, more) => {
    const { client } = await serve((request, response) => answerJson(response, receiptOf(request, more)));
    expect(await thrown(client.reportObservation(observation))).toBeInstanceOf(ContractViolationError);
  });

  it('takes a receipt at a lower minor', async () => {
    const protocol = { major: 32, minor: 3 };
    const { client } = await serve((request, response) => answerJson(response, receiptOf(request, { protocol })));
    expect(await client.reportObservation(observation)).toMatchObject({ protocol });
  });

  it.each([
    [2048, true],
    [2049, false],
  ])('reads a receipt of %s bytes: %s', async (bytes, fits) => {
    const { client } = await serve((request, response) => {
      const text = JSON.stringify(receiptOf(request));
      answerText(response, text + ' '.repeat(bytes - text.length));
    });
    const error = await thrown(client.reportObservation(observation));
    if (fits) expect(error).toBeUndefined();
    else expect(error).toMatchObject({ code: 'answer-too-large' });
  });
});

describe('a page', () => {
  it('is asked for within 4,096 bytes', async () => {
    const { server, client } = await serve(({ json }, response) =>
      answerJson(response, {
        aggregate: null,
        page: null,
        nodeId: json['nodeId'],
        nodeHandoffs: [],
        protocol: supportedProtocol,
      }),
    );
    expect(await client.getPreparedVolumeHandoffs(null, 0)).toMatchObject({ aggregate: null });
    const longest = { id: 'i'.repeat(128), generation: Number.MAX_SAFE_INTEGER, digest: referenceNamed('x').digest };
    await thrown(client.getPreparedVolumeHandoffs(longest, 4095));
    expect(server.requests[1]?.body.length).toBeLessThan(
      sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.maxRequestBytes,
    );
    expect(await thrown(client.getPreparedVolumeHandoffs(longest, 4096))).toBeInstanceOf(ContractError);
  });

  it.each([
    [262_144, true],
    [262_145, false],
  ])('of %s bytes is read: %s', async (bytes, fits) => {
    const { client } = await serve((_request, response) => {
      const empty = { aggregate: null, page: null, nodeId: 'node-a', nodeHandoffs: [], protocol: supportedProtocol };
      const text = JSON.stringify(empty);
      answerText(response, text + ' '.repeat(bytes - text.length));
    });
    const error = await thrown(client.getPreparedVolumeHandoffs(null, 0));
    if (fits) expect(error).toBeUndefined();
    else expect(error).toMatchObject({ code: 'answer-too-large' });
  });
});

describe('another protocol', () => {
  it('is refused with the offer that the service supports', async () => {
    const supported = { major: 33, minor: 2 };
    const { server, client } = await serve((_request, response) =>
      answerProblem(response, refuse('protocol-unsupported', { supported }).problem),
    );
    for (const call of [client.reportObservation(observation), client.getPreparedVolumeHandoffs(null, 0)]) {
      const error = await thrown(call);
      expect(error).toBeInstanceOf(ProblemError);
      expect(error).toMatchObject({ code: 'protocol-unsupported', status: 426, supported });
    }
    expect(server.requests).toHaveLength(2);
  });
});

describe('the node’s token', () => {
  it('is in nothing that the client throws or shows', async () => {
    const answers: Answering[] = [
      (_request, response) => answerProblem(response, refuse('credential-refused').problem),
      (_request, response) => void response.destroy(),
      (_request, response) => answerText(response, 'no JSON'),
      (request, response) => answerJson(response, receiptOf(request, { nodeId: 'node-b' })),
    ];
    for (const answering of answers) {
      const { client } = await serve(answering);
      const errors = [
        await thrown(client.reportObservation(observation)),
        await thrown(client.getPreparedVolumeHandoffs(null, 0)),
      ];
      expect(errors.every((error) => error instanceof Error)).toBe(true);
      expect(inspect([errors, client], { depth: 20, showHidden: true }) + errors.map(String).join()).not.toContain(
        canary,
      );
    }
  });

  it('of another shape is not sent and not shown', async () => {
    const server = await openAnsweringServer((request, response) => answerJson(response, receiptOf(request)));
    const client = createSparkClient({ url: server.url, nodeId: 'node-a', nodeToken: new Secret('canary') });
    open.push(server, client);
    const error = await thrown(client.reportObservation(observation));
    expect(error).toBeInstanceOf(ContractError);
    expect(inspect(error)).not.toContain('canary');
    expect(server.requests).toHaveLength(0);
  });
});
