/** The description as the service serves it: the same text as printed, true of real answers, and a page that shows it. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { type Browser, chromium } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApp } from '../../src/app.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { methodPath } from '../../src/contract/method.js';
import { methods, type TMethodName } from '../../src/contract/methods.js';
import { type OpenApiDocument, openApiDocument, openApiText } from '../../src/contract/openapi.js';
import { createServer } from '../../src/http/server.js';
import { createLogger } from '../../src/http/request-log.js';
import { mutationId, startService, type TestService } from '../support/service.js';

const root = join(import.meta.dirname, '..', '..');

let service: TestService;
let document: OpenApiDocument;
const ajv = new Ajv2020({ strict: false, validateFormats: false });
beforeAll(async () => {
  service = await startService();
  document = (await (await fetch(`${service.url}/openapi.json`)).json()) as OpenApiDocument;
  ajv.addSchema(document, 'api');
  const cluster = { clusterId: 'c', controllerId: 'c', runtimeNamespace: 'n' };
  await service.done('createCluster', { mutationId: mutationId(), ...cluster });
});
afterAll(() => service.close());

/** Errors of an answer by the schema that the served document has for this path, verb and status. */
function errorsOf(path: string, verb: string, status: number, mediaType: string, body: unknown): unknown[] {
  const pointer = (...parts: string[]) =>
    parts.map((part) => part.replaceAll('~', '~0').replaceAll('/', '~1')).join('/');
  const response = document.paths[path]?.[verb]?.responses[String(status)];
  if (response === undefined) return [`${verb} ${path} has no answer with status ${status}`];
  const place =
    typeof response['$ref'] === 'string'
      ? response['$ref'].slice(2)
      : pointer('paths', path, verb, 'responses', String(status));
  const validate = ajv.getSchema(`api#/${place}/${pointer('content', mediaType, 'schema')}`);
  if (validate === undefined) return [`${verb} ${path} has no ${mediaType} with status ${status}`];
  return validate(body) === true ? [] : (validate.errors ?? ['invalid']);
}

async function post(path: string, body: unknown, token: string | undefined = service.token) {
  const response = await fetch(service.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(token === '' ? {} : { authorization: `Bearer ${token}` }) },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const mediaType = response.headers.get('content-type')?.split(';')[0] ?? '';
  return { status: response.status, mediaType, body: (await response.json()) as Record<string, unknown> };
}

async function checked(path: string, body: unknown, token?: string) {
  const answer = await post(path, body, token);
  expect(errorsOf(path, 'post', answer.status, answer.mediaType, answer.body)).toEqual([]);
  return answer;
}

const call = (name: TMethodName, body: unknown, token?: string) => checked(methodPath(methods[name]), body, token);

describe('the description', () => {
  it('is served to anybody, as the very text that the command prints', async () => {
    const response = await fetch(`${service.url}/openapi.json`);
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/json; charset=utf-8']);
    expect(await response.text()).toBe(openApiText());
    expect(await (await fetch(`${service.url}/docs/json`)).json()).toEqual(openApiDocument());
    const printed = await promisify(execFile)(process.execPath, ['--import', 'tsx', 'src/cli/main.ts', 'openapi'], {
      cwd: root,
      maxBuffer: 16 * 1024 * 1024,
    });
    expect(printed.stdout).toBe(openApiText());
  }, 60_000);

  it('has every route of the service but those that show it', () => {
    const described = Object.entries(document.paths).flatMap(([path, verbs]) =>
      Object.keys(verbs).map((verb) => `${verb.toUpperCase()} ${path}`),
    );
    const bound = service.app.boundRoutes.map(({ method, path }) => `${method} ${path}`);
    const rest = bound.filter((route) => !described.includes(route));
    expect(rest.filter((route) => !/^(GET|HEAD) \/(openapi\.json|docs(\/.*)?)$/.test(route))).toEqual([]);
    expect(described.filter((route) => !bound.includes(route))).toEqual([]);
  });

  it('is true of what queries and mutations really answer', async () => {
    expect((await call('readCluster', { clusterId: 'c' })).status).toBe(200);
    expect((await call('listClusters', {})).status).toBe(200);
    expect((await call('readFleetCutoverState', { clusterId: 'c' })).status).toBe(200);
    expect((await call('explainFleetCutover', { clusterId: 'c', subject: { kind: 'cluster' } })).status).toBe(200);
    const node = { mutationId: mutationId(), clusterId: 'c', nodeId: 'n', corestorePublicKey: null };
    const registered = await call('registerNode', node);
    expect(registered.body).toMatchObject({ replayed: false, node: { nodeId: 'n' } });
    expect((await call('registerNode', node)).body).toMatchObject({ replayed: true, secrets: [] });
    const [token] = registered.body['secrets'] as { secret: string }[];
    const { fleetCutoverPreparedVolumeHandoffs: pages } = sparkSwarmNodeContracts;
    const read = { nodeId: 'n', protocol: { major: 32, minor: 15 }, aggregate: null, pageIndex: 0 };
    expect((await checked(pages.endpoint, { ...read, nodeToken: token?.secret }, '')).status).toBe(200);
  });

  it('is true of problems', async () => {
    const stale = { id: 'r', generation: 1, digest: `sha256:${'0'.repeat(64)}` };
    const advance = { mutationId: mutationId(), clusterId: 'c', runtime: stale, to: 'draining' };
    expect((await call('advanceFleetCutoverPhase', advance)).body).toMatchObject({ code: 'runtime-stale' });
    expect((await call('readCluster', { clusterId: 'other' })).body).toMatchObject({ code: 'cluster-unknown' });
    expect((await call('readCluster', { clusterId: 'c', more: 1 })).body).toMatchObject({ code: 'body-schema' });
    expect((await call('readCluster', {}, '')).body).toMatchObject({ code: 'credential-missing' });
    expect((await call('readCluster', ' '.repeat(70_000))).body).toMatchObject({ code: 'body-too-large' });
    const { endpoint } = sparkSwarmNodeContracts.swarmObservation;
    expect((await checked(endpoint, {}, '')).body).toMatchObject({ code: 'credential-missing' });
    expect((await checked('/typedrequest', '{')).body).toMatchObject({ code: 'body-invalid-json' });
    const envelope = { method: 'readCluster', request: { clusterId: 'other' }, response: null };
    expect((await checked('/typedrequest', envelope)).body).toMatchObject({
      error: { data: { code: 'cluster-unknown' } },
    });
  });

  it('does not take what is no answer', () => {
    const path = methodPath(methods.readCluster);
    expect(errorsOf(path, 'post', 200, 'application/json', { cluster: null, runtime: null })).not.toEqual([]);
    const problem = { type: 'x', title: 'x', status: 404, code: 'gate-unmet' };
    expect(errorsOf(path, 'post', 404, 'application/problem+json', problem)).not.toEqual([]);
    expect(errorsOf(path, 'post', 404, 'application/problem+json', { ...problem, code: 'cluster-unknown' })).toEqual(
      [],
    );
  });

  it('is true of health and readiness', async () => {
    for (const path of ['/health', '/readiness']) {
      const response = await fetch(service.url + path);
      expect(errorsOf(path, 'get', response.status, 'application/json', await response.json())).toEqual([]);
    }
    service.setStopping(true);
    const response = await fetch(`${service.url}/readiness`);
    service.setStopping(false);
    expect(response.status).toBe(503);
    expect(errorsOf('/readiness', 'get', 503, 'application/json', await response.json())).toEqual([]);
  });
});

describe('routes', () => {
  it('say whom they are for; public are those that tell nothing of a fleet', () => {
    const open = service.app.boundRoutes.filter(({ caller }) => caller === 'public').map(({ path }) => path);
    expect(open.filter((path) => !/^\/(health|readiness|openapi\.json|docs(\/.*)?)$/.test(path))).toEqual([]);
  });

  it('that do not say it are refused', () => {
    const app = createServer({ logger: createLogger('silent') });
    expect(() => app.get('/open', () => 'anybody')).toThrow('the route /open does not say who may call it');
  });

  it('of the description are not there where it is switched off', async () => {
    const app = createApp(service.deps, {
      server: { logger: createLogger('silent') },
      takeLargeReport: () => Promise.reject(new Error('not asked')),
      keyRing: [],
      process: { separation: 'full', database: 'embedded', migrations: [], stopping: () => false },
      docs: false,
    });
    for (const url of ['/openapi.json', '/docs', '/docs/', '/docs/json', '/docs/static/swagger-ui.css']) {
      expect((await app.inject({ url })).json()).toMatchObject({ code: 'route-unknown' });
    }
    await app.close();
  });

  it('of the page stay inside of its files, and take no other verb', async () => {
    const outside = ['/docs/static/../package.json', '/docs/static/%2e%2e/package.json', '/docs/static/nothing.js'];
    for (const url of outside) {
      const answer = await service.app.inject({ url });
      expect([url, answer.statusCode]).toEqual([url, 404]);
      expect(answer.json()).toMatchObject({ code: 'route-unknown' });
    }
    const posted = await post('/docs', {});
    expect(posted).toMatchObject({ status: 405, body: { code: 'method-not-allowed' } });
  });
});

const executablePath = '/usr/bin/chromium';
const hasBrowser = existsSync(executablePath);
if (!hasBrowser) console.warn(`The page at /docs is not tried in a browser: there is no ${executablePath}`);

describe.runIf(hasBrowser)('the page in a browser', () => {
  let browser: Browser;
  beforeAll(async () => {
    // Chromium has no sandbox for root.
    browser = await chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
  }, 60_000);
  afterAll(() => browser?.close());

  it('shows the methods, needs nothing from elsewhere and complains of nothing', async () => {
    const page = await browser.newPage();
    const complaints: string[] = [];
    const hosts = new Set<string>();
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('requestfailed', (request) => complaints.push(`failed: ${request.url()}`));
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (url.protocol !== 'data:') hosts.add(url.host);
    });
    const response = await page.goto(`${service.url}/docs`);
    expect(response?.headers()['content-security-policy']).toContain("default-src 'none'");
    const method = page.locator('#operations-fleetcutover-prepareFleetCutoverVolumeHandoffs');
    await method.waitFor();
    expect(await method.textContent()).toContain(methods.prepareFleetCutoverVolumeHandoffs.summary);
    await method.locator('.opblock-summary-control').click();
    await method.locator('.responses-table').waitFor();
    expect(await method.textContent()).toContain('aggregate-stale');
    // Nothing is sent from here.
    expect(await method.locator('.try-out').count()).toBe(0);
    expect(complaints).toEqual([]);
    expect([...hosts]).toEqual([new URL(service.url).host]);
    await page.close();
  }, 120_000);
});
