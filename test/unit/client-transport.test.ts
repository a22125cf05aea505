import { type AddressInfo, createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { TransportError } from '../../src/client/errors.js';
import { parseServiceUrl, ServiceUrlError } from '../../src/client/service-url.js';
import {
  openTransport,
  type OutgoingRequest,
  type Transport,
  type TransportOptions,
} from '../../src/client/transport.js';
import { answerJson, type Answering, openAnsweringServer } from '../support/answering-server.js';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

async function serve(answering: Answering) {
  const server = await openAnsweringServer(answering);
  open.push(server);
  return server;
}

function transportTo(url: string, options: Partial<TransportOptions> = {}): Transport {
  const transport = openTransport({ url, ...options });
  open.push(transport);
  return transport;
}

const bearer = `fc.cred-1.${'s'.repeat(43)}`;

function request(more: Partial<OutgoingRequest> = {}): OutgoingRequest {
  const body = new TextEncoder().encode('{}');
  return { path: '/route', body, bearer, maximumAnswerBytes: 1000, maximumProblemBytes: 1000, ...more };
}

async function failure(work: Promise<unknown>): Promise<TransportError> {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(TransportError);
  return error as TransportError;
}

describe('a request', () => {
  it('goes to the prefix and route with the bearer, as JSON', async () => {
    const server = await serve((_request, response) => answerJson(response, { ok: true }));
    const answer = await transportTo(`${server.url}/cloudly/`).post(request());
    expect(new TextDecoder().decode(answer.body)).toBe('{"ok":true}');
    expect(answer).toMatchObject({ status: 200, mediaType: 'application/json', retryAfterSeconds: null });
    expect(server.requests[0]).toMatchObject({
      path: '/cloudly/route',
      headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json', 'content-length': '2' },
    });
  });

  it('keeps its connection for the next one', async () => {
    const server = await serve((_request, response) => answerJson(response, {}));
    let connections = 0;
    server.server.on('connection', () => (connections += 1));
    const transport = transportTo(server.url);
    for (let count = 0; count < 5; count += 1) await transport.post(request());
    expect(connections).toBeLessThanOrEqual(2); // a connection may still be ending one request when the next comes
  });

  it('follows no redirect', async () => {
    const target = await serve((_request, response) => answerJson(response, {}));
    const server = await serve(
      (_request, response) => response.writeHead(307, { location: target.url }).end() && undefined,
    );
    expect((await transportTo(server.url).post(request())).status).toBe(307);
    expect(target.requests).toHaveLength(0);
  });

  it.each([
    ['17', 17],
    ['0', 0],
    ['Wed, 21 Oct 2026 07:28:00 GMT', null],
    ['-1', null],
  ])('reads Retry-After %s as %s', async (header, seconds) => {
    const server = await serve((_request, response) => void response.writeHead(503, { 'retry-after': header }).end());
    expect((await transportTo(server.url).post(request())).retryAfterSeconds).toBe(seconds);
  });
});

describe('the byte limit of an answer', () => {
  it.each([true, false])('lets it pass exactly and not one byte more (length told: %s)', async (told) => {
    const server = await serve(({ json }, response) => {
      const bytes = Number(json['bytes']);
      response.writeHead(200, told ? { 'content-length': bytes } : {});
      if (!told) response.flushHeaders();
      response.end('x'.repeat(bytes));
    });
    const transport = transportTo(server.url);
    const post = (bytes: number) => transport.post(request({ body: new TextEncoder().encode(`{"bytes":${bytes}}`) }));
    expect((await post(1000)).body).toHaveLength(1000);
    expect(await failure(post(1001))).toMatchObject({ code: 'answer-too-large', outcome: 'unknown' });
    expect((await post(1000)).body).toHaveLength(1000);
  });

  it('is enforced while an endless answer streams', async () => {
    let sent = 0;
    let closed = false;
    const server = await serve(async (_request, response) => {
      response.on('close', () => (closed = true));
      while (!closed && sent < 50_000_000) {
        sent += 10_000;
        if (!response.write('x'.repeat(10_000))) await new Promise((resolve) => setTimeout(resolve, 1));
      }
    });
    expect((await failure(transportTo(server.url).post(request()))).code).toBe('answer-too-large');
    expect(sent).toBeLessThan(50_000_000);
  });

  it('is another one for refusals', async () => {
    const server = await serve((_request, response) => void response.writeHead(409).end('x'.repeat(100)));
    const transport = transportTo(server.url);
    expect((await transport.post(request({ maximumAnswerBytes: 5, maximumProblemBytes: 100 }))).body).toHaveLength(100);
    expect((await failure(transport.post(request({ maximumProblemBytes: 99 })))).code).toBe('answer-too-large');
  });
});

describe('an answer that does not come', () => {
  it('because nobody listens: nothing was sent', async () => {
    const vacant = await serve(() => {});
    await vacant.close();
    const error = await failure(transportTo(vacant.url).post(request()));
    expect(error).toMatchObject({ code: 'connection-failed', outcome: 'not-sent', systemCode: 'ECONNREFUSED' });
  });

  it('because the connection is cut before, or within, the answer: unknown', async () => {
    const server = await serve(({ json }, response) => {
      if (json['within'] === true) {
        response.writeHead(200, { 'content-length': 100 });
        response.write('half');
      }
      setTimeout(() => response.destroy(), 20);
    });
    const transport = transportTo(server.url);
    for (const within of [true, false]) {
      const body = new TextEncoder().encode(JSON.stringify({ within }));
      expect(await failure(transport.post(request({ body })))).toMatchObject({
        code: 'connection-lost',
        outcome: 'unknown',
      });
    }
  });

  it('because it is no HTTP: unknown', async () => {
    const server = createServer((socket) =>
      socket
        .on('error', () => {})
        .resume()
        .end('SSH-2.0-x\r\n'),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    open.push({ close: () => new Promise((resolve) => server.close(() => resolve())) });
    const { port } = server.address() as AddressInfo;
    const error = await failure(transportTo(`http://127.0.0.1:${port}`).post(request()));
    expect(error).toMatchObject({ code: 'connection-lost', outcome: 'unknown' });
  });

  it.each(['head', 'body'])('in time (%s): unknown', async (stage) => {
    const server = await serve((_request, response) => {
      if (stage === 'body') response.writeHead(200).write('x');
    });
    const error = await failure(transportTo(server.url, { requestTimeoutMs: 100 }).post(request()));
    expect(error).toMatchObject({ code: 'timeout', outcome: 'unknown' });
  });

  it('because the caller ends it', async () => {
    const ending = new AbortController();
    const server = await serve(() => ending.abort());
    const transport = transportTo(server.url);
    const error = await failure(transport.post(request({ signal: ending.signal })));
    expect(error).toMatchObject({ code: 'aborted', outcome: 'unknown' });
    const next = await failure(transport.post(request({ signal: ending.signal })));
    expect(next).toMatchObject({ code: 'aborted', outcome: 'not-sent' });
    expect(server.requests).toHaveLength(1);
  });

  it('because the transport was closed', async () => {
    const server = await serve((_request, response) => answerJson(response, {}));
    const transport = openTransport({ url: server.url });
    await transport.post(request());
    await transport.close();
    expect(await failure(transport.post(request()))).toMatchObject({ code: 'closed', outcome: 'not-sent' });
  });
});

describe('the service’s URL', () => {
  it.each([
    ['https://cloudly.example/', { origin: 'https://cloudly.example', prefix: '' }],
    ['https://cloudly.example:8443/a/b//', { origin: 'https://cloudly.example:8443', prefix: '/a/b' }],
    ['http://localhost:1', { origin: 'http://localhost:1', prefix: '' }],
    ['http://127.8.0.1', { origin: 'http://127.8.0.1', prefix: '' }],
    ['http://[::1]:80', { origin: 'http://[::1]', prefix: '' }],
  ])('%s is taken apart', (url, expected) => {
    expect(parseServiceUrl(url)).toEqual(expected);
  });

  it.each([
    'cloudly',
    'ftp://localhost',
    'https://user:canary@cloudly.example',
    'https://cloudly.example/?q=canary',
    'https://cloudly.example/#canary',
    'http://cloudly.example/canary',
    'http://127.0.0.1.example/canary',
  ])('%s is refused without being quoted', (url) => {
    expect(() => parseServiceUrl(url)).toThrow(ServiceUrlError);
    expect(() => parseServiceUrl(url)).not.toThrow(/canary/);
  });

  it('may be plain http where that is meant', () => {
    expect(parseServiceUrl('http://cloudly:8080', { allowPlainHttp: true }).origin).toBe('http://cloudly:8080');
  });
});
