import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { problemCatalogue } from '../../src/contract/problems.js';
import {
  CommitUnknownError,
  TransactionContendedError,
  TransactionLostError,
} from '../../src/db/transaction-errors.js';
import { failureOf } from '../../src/http/failure.js';
import { LargeBodyGate } from '../../src/http/large-body-gate.js';
import { LoginThrottle } from '../../src/http/login-throttle.js';
import { readOwnerRequest, ResponseSchemaError, writeOwnerResponse } from '../../src/http/owner-body.js';
import { problemText } from '../../src/http/problem-reply.js';
import { createLogger, describeError } from '../../src/http/request-log.js';
import { createServer } from '../../src/http/server.js';
import { isRefused } from '../../src/refusal.js';

describe('LoginThrottle', () => {
  function throttle() {
    let now = 1_000_000;
    const made = new LoginThrottle({ now: () => new Date(now) });
    return { made, pass: (ms: number) => (now += ms) };
  }

  it('lets some failures be, then says how long to wait, and forgets with time', () => {
    const { made, pass } = throttle();
    const waits = Array.from({ length: 12 }, () => made.fail('10.0.0.1', 'node'));
    expect(waits.slice(0, 10)).toEqual(Array(10).fill(undefined));
    expect(waits[10]).toBe(6);
    pass(6_000);
    expect(made.fail('10.0.0.2', 'node')).toBeUndefined();
    expect(made.fail('10.0.0.2', 'node')).toBe(6);
    pass(3_600_000);
    expect(Array.from({ length: 10 }, () => made.fail('10.0.0.3', 'node'))).toEqual(Array(10).fill(undefined));
  });

  it('counts by address, an IPv6 network as one, a mapped address as its IPv4', () => {
    const { made } = throttle();
    for (let host = 0; host < 20; host += 1) expect(made.fail(`2001:db8:1:2::${host}`, undefined)).toBeUndefined();
    expect(made.fail('2001:db8:1:2:ffff::1', undefined)).toBe(3);
    expect(made.fail('2001:db8:1:3::1', undefined)).toBeUndefined();
    for (let times = 0; times < 20; times += 1) made.fail('::ffff:10.0.0.9', undefined);
    expect(made.fail('10.0.0.9', undefined)).toBe(3);
  });

  it('counts what is no address as one', () => {
    const { made } = throttle();
    for (let times = 0; times < 20; times += 1) expect(made.fail(`not an address ${times}`, undefined)).toBeUndefined();
    expect(made.fail('10.0.0.1:4711', undefined)).toBe(3);
  });

  it('refills nothing where the clock was set back', () => {
    const { made, pass } = throttle();
    for (let times = 0; times < 11; times += 1) made.fail('10.0.0.1', 'node');
    pass(-500_000);
    expect(made.fail('10.0.0.2', 'node')).toBeGreaterThan(0);
  });
});

describe('the client’s address', () => {
  const addressSeen = async (trustedProxies: readonly string[] | undefined, from: string, forwarded: string) => {
    const logger = createLogger('silent');
    const app = createServer(trustedProxies === undefined ? { logger } : { logger, trustedProxies });
    app.get('/address', { config: { caller: 'public' } }, (request, reply) => reply.send(request.ip));
    const headers = { 'x-forwarded-for': forwarded };
    return (await app.inject({ url: '/address', remoteAddress: from, headers })).body;
  };

  it('is the connection’s, whatever a header says, where no proxy is trusted', async () => {
    expect(await addressSeen(undefined, '10.0.0.2', '192.0.2.1')).toBe('10.0.0.2');
    expect(await addressSeen([], '10.0.0.2', '192.0.2.1')).toBe('10.0.0.2');
  });

  it('is the last one that no trusted proxy has, and nobody else’s header is believed', async () => {
    expect(await addressSeen(['10.0.0.0/8'], '10.0.0.2', '192.0.2.1')).toBe('192.0.2.1');
    expect(await addressSeen(['uniquelocal'], '::ffff:172.18.0.3', '198.51.100.9, 192.0.2.1, 10.1.1.1')).toBe(
      '192.0.2.1',
    );
    expect(await addressSeen(['10.0.0.0/8'], '203.0.113.5', '192.0.2.1')).toBe('203.0.113.5');
  });
});

describe('LargeBodyGate', () => {
  it('does two large bodies at once, in order, and small ones beside them', async () => {
    const gate = new LargeBodyGate();
    let inside = 0;
    let most = 0;
    const order: number[] = [];
    const work = (index: number) => async () => {
      inside += 1;
      most = Math.max(most, inside);
      await sleep(5);
      inside -= 1;
      order.push(index);
    };
    const large = Array.from({ length: 8 }, (_, index) => gate.pass(65_537, work(index)));
    await gate.pass(65_536, async () => {
      expect(order).toEqual([]);
    });
    await Promise.all(large);
    expect(most).toBe(2);
    expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  it('refuses where too many wait, and lets the next one in after a failure', async () => {
    const gate = new LargeBodyGate();
    let open = (): void => {};
    const opened = new Promise<void>((resolve) => (open = resolve));
    const held = Array.from({ length: 66 }, () => gate.pass(1e6, () => opened));
    expect(await gate.pass(1e6, async () => 'in')).toMatchObject({ problem: { code: 'unavailable' } });
    open();
    await Promise.all(held);
    await expect(gate.pass(1e6, () => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
    expect(await gate.pass(1e6, async () => 'in')).toBe('in');
    expect(await gate.pass(1e6, async () => 'in')).toBe('in');
  });
});

describe('failureOf', () => {
  const databaseError = (code: string) => Object.assign(new pg.DatabaseError('x', 1, 'error'), { code });
  const lost = new TransactionLostError('t', new Error('x'));
  const unknown = new CommitUnknownError('t', 'unknown', new Error('x'));

  it.each([
    ['a lost connection', lost, 'unavailable', 'not-applied'],
    ['contention', new TransactionContendedError('t', 6, new Error('x')), 'unavailable', 'not-applied'],
    ['a statement timeout', databaseError('57014'), 'unavailable', 'not-applied'],
    ['a lock timeout', databaseError('55P03'), 'unavailable', 'not-applied'],
    ['too many connections', databaseError('53300'), 'unavailable', 'not-applied'],
    ['a lost COMMIT', unknown, 'outcome-unknown', 'unknown'],
    ['a constraint', databaseError('23514'), 'internal', 'not-applied'],
    ['a fault of ours', new TypeError('x'), 'internal', 'unknown'],
    ['what is no error', 'x', 'internal', 'unknown'],
  ])('says of %s what became of the mutation', (_what, error, code, mutationOutcome) => {
    const { problem, unexpected } = failureOf(error, { mutation: true });
    expect(problem).toMatchObject({ code, mutationOutcome });
    expect(problem.retrySafe).toBe(problemCatalogue[problem.code].status === 503 ? true : undefined);
    expect(unexpected).toBe(true);
  });

  it('says nothing of a mutation to who asked a question', () => {
    expect(failureOf(unknown, { mutation: false }).problem).toEqual({ code: 'unavailable', retrySafe: true });
    expect(failureOf(new TypeError('x'), { mutation: false }).problem).toEqual({ code: 'internal' });
  });
});

describe('problems', () => {
  it('never carry a field that the document does not have', () => {
    const leaking = { code: 'node-unknown', secret: 'canary' } as never;
    expect(problemText(leaking)).not.toContain('canary');
    expect(JSON.parse(problemText(leaking))).toMatchObject({ code: 'node-unknown', status: 404 });
  });

  it('lose their explanation rather than their code where there is no room', () => {
    const text = problemText({ code: 'body-schema', errors: ['x'.repeat(3000)], retrySafe: false }, 2048);
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(2048);
    expect(JSON.parse(text)).toMatchObject({ code: 'body-schema', retrySafe: false });
  });
});

describe('owner bodies', () => {
  it('are read strictly', () => {
    const read = (text: string) => readOwnerRequest('listClusters', Buffer.from(text));
    expect(read('{}')).toEqual({ kind: 'request', request: {} });
    expect(read('')).toMatchObject({ problem: { code: 'body-invalid-json' } });
    expect(read('{"a":1}')).toMatchObject({ problem: { code: 'body-schema' } });
    expect(isRefused(readOwnerRequest('listClusters', undefined))).toBe(true);
  });

  it('are written only as the schema says', () => {
    expect(writeOwnerResponse('listClusters', { clusters: [] })).toBe('{"clusters":[]}');
    for (const wrong of [{}, { clusters: [], token: 'canary' }, { clusters: [{ token: 'canary' }] }, null]) {
      let error: unknown;
      try {
        writeOwnerResponse('listClusters', wrong);
      } catch (thrown) {
        error = thrown;
      }
      expect(error).toBeInstanceOf(ResponseSchemaError);
      expect(String(error)).not.toContain('canary');
    }
  });
});

describe('the log', () => {
  it('shows of errors what holds no values', () => {
    const refused = Object.assign(new pg.DatabaseError('value canary is wrong', 1, 'error'), {
      code: '22P02',
      severity: 'ERROR',
      detail: 'Key (token)=(canary)',
      where: 'canary',
      constraint: 'services_name',
    });
    const shown = JSON.stringify(describeError(new Error('outer', { cause: refused })));
    expect(shown).not.toContain('canary');
    expect(shown).toContain('22P02');
    expect(shown).toContain('services_name');
    expect(describeError('canary')).toEqual({ type: 'string', message: '' });
  });

  it('shows neither request nor reply', () => {
    const lines: string[] = [];
    const log = createLogger('trace', { write: (line) => lines.push(line) });
    log.info({ req: { headers: { authorization: 'canary' } }, res: { body: 'canary' } }, 'x');
    expect(lines.join('')).not.toContain('canary');
  });
});
