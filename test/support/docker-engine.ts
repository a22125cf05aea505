/** Engines for tests of the collectors: the captured swarm, edited copies of it, and a socket that answers as told. */
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { SparkFacts } from '../../src/agents/docker/local-snapshot.js';

/** An engine's raw answer: its shape is what the tests are about, so nothing is promised. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type RawAnswer = any;

export type CapturedNode = 'manager' | 'worker';

export function capturedDirectory(node: CapturedNode): string {
  return fileURLToPath(new URL(`../fixtures/swarm/${node}`, import.meta.url));
}

/** A raw captured answer, as the engine sent it. */
export async function capturedAnswer(node: CapturedNode, file: string): Promise<RawAnswer> {
  return JSON.parse(await readFile(join(capturedDirectory(node), file), 'utf8'));
}

export type Edit = (file: string, change: (answer: RawAnswer) => unknown) => Promise<void>;

/**
 * A copy of a captured node that the test may change: `edit` changes an answer in place or replaces it by what `change`
 * returns. A string is written as it is.
 */
export async function editedCapture(node: CapturedNode, work: (edit: Edit) => Promise<void>): Promise<string> {
  const directory = await temporaryDirectory();
  await cp(capturedDirectory(node), directory, { recursive: true });
  await work(async (file, change) => {
    const path = join(directory, file);
    const answer: unknown = JSON.parse(await readFile(path, 'utf8'));
    const changed = change(answer) ?? answer;
    await writeFile(path, typeof changed === 'string' ? changed : JSON.stringify(changed));
  });
  return directory;
}

async function temporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'docker-engine-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

export interface Served {
  readonly status: number;
  readonly body: string;
}

/** Listens on a Unix socket. `answer` gets the path with its version; undefined leaves the request unanswered. */
export async function engineSocket(
  answer: (
    path: string,
    response: ServerResponse,
    request: IncomingMessage,
  ) => Promise<Served | undefined> | Served | undefined,
): Promise<string> {
  const socketPath = join(await temporaryDirectory(), 'engine.sock');
  const server = createServer((request, response) => {
    void Promise.resolve(answer(request.url ?? '', response, request)).then((served) => {
      if (served !== undefined) response.writeHead(served.status).end(served.body);
    });
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  });
  return socketPath;
}

/** Answers requests as a captured node did, at any API version. */
export async function replay(node: CapturedNode): Promise<(path: string) => Promise<Served>> {
  const index: { path: string; file: string; status: number }[] = await capturedAnswer(node, 'index.json');
  return async (path) => {
    const entry = index.find((one) => withoutVersion(one.path) === withoutVersion(path));
    if (entry === undefined) return { status: 404, body: '{"message":"page not found"}' };
    return { status: entry.status, body: await readFile(join(capturedDirectory(node), entry.file), 'utf8') };
  };
}

function withoutVersion(path: string): string {
  return path.replace(/^\/v[\d.]+/, '');
}

const digest = (digit: string) => `sha256:${digit.repeat(64)}` as const;

export const sparkFacts: SparkFacts = {
  runtime: { id: 'cluster-1', generation: 3, digest: digest('0') },
  spark: {
    bundleDigest: digest('1'),
    unitDigest: digest('2'),
    configurationDigest: digest('3'),
    oldModeRefused: true,
  },
  pallet: null,
};
