import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLosingProxy } from '../../src/demo/losing-proxy.js';

const seen: { path: string; authorization: string | undefined; body: string }[] = [];
let status = 200;
let target = '';
const server = createServer((request, response) => {
  void (async () => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    seen.push({ path: request.url!, authorization: request.headers.authorization, body });
    response.writeHead(status, { 'content-type': status === 200 ? 'application/json' : 'application/problem+json' });
    response.end(`{"count":${seen.length}}`);
  })();
});

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  target = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

describe('the losing proxy', () => {
  it('loses the first answer after the service has acted, and passes on all others as they are', async () => {
    const proxy = await openLosingProxy(target);
    const post = () =>
      fetch(`${proxy.url}/a/b`, { method: 'POST', headers: { authorization: 'Bearer it' }, body: '{"x":1}' });
    try {
      status = 409;
      const refusal = await post();
      expect([refusal.status, refusal.headers.get('content-type'), proxy.lost]).toEqual([
        409,
        'application/problem+json',
        0,
      ]);
      status = 200;
      await expect(post()).rejects.toThrow();
      expect([seen.length, proxy.lost]).toEqual([2, 1]);
      const answer = await post();
      expect([answer.status, answer.headers.get('content-type'), await answer.text(), proxy.lost]).toEqual([
        200,
        'application/json',
        '{"count":3}',
        1,
      ]);
      expect(new Set(seen.map((each) => JSON.stringify(each)))).toEqual(
        new Set([JSON.stringify({ path: '/a/b', authorization: 'Bearer it', body: '{"x":1}' })]),
      );
    } finally {
      await proxy.close();
    }
  });
});
