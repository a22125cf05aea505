/** A real HTTP server that answers what a test tells it to. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { problemCatalogue, problemDocument, type Problem } from '../../src/contract/problems.js';

export interface ReceivedRequest {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
  /** The body as JSON. */
  readonly json: Record<string, unknown>;
  /** Its number, from 1. */
  readonly count: number;
}

export type Answering = (request: ReceivedRequest, response: ServerResponse) => void | Promise<void>;

export interface AnsweringServer {
  readonly url: string;
  readonly requests: ReceivedRequest[];
  readonly server: Server;
  close(): Promise<void>;
}

export async function openAnsweringServer(answering: Answering): Promise<AnsweringServer> {
  const requests: ReceivedRequest[] = [];
  const server = createServer((incoming, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of incoming) chunks.push(chunk as Buffer);
      const body = Buffer.concat(chunks);
      const json = JSON.parse(body.toString()) as Record<string, unknown>;
      const request = { path: incoming.url ?? '', headers: incoming.headers, body, json, count: requests.length + 1 };
      requests.push(request);
      await answering(request, response);
    })().catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    server,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

export function answerJson(response: ServerResponse, value: unknown, headers: Record<string, string> = {}): void {
  answerText(response, JSON.stringify(value), headers);
}

/** A body that says it is JSON. */
export function answerText(response: ServerResponse, text: string, headers: Record<string, string> = {}): void {
  response.writeHead(200, { 'content-type': 'application/json', ...headers });
  response.end(text);
}

export function answerProblem(response: ServerResponse, problem: Problem, headers: Record<string, string> = {}): void {
  response.writeHead(problemCatalogue[problem.code].status, { 'content-type': 'application/problem+json', ...headers });
  response.end(JSON.stringify(problemDocument(problem)));
}
