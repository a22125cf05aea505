/** A proxy between client and service that does something to the answers. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface AnswerProxy {
  readonly url: string;
  close(): Promise<void>;
}

export interface ProxiedAnswer {
  /** Path of the request. */
  readonly path: string;
  readonly status: number;
  readonly body: string;
}

/**
 * Passes requests on to the service at `target`, and of each answer what `passOn` makes of its body. Null: the connection is
 * cut although the service has answered, and the client sees nothing of it.
 */
export async function openAnswerProxy(
  target: string,
  passOn: (answer: ProxiedAnswer) => string | null | Promise<string | null>,
): Promise<AnswerProxy> {
  const server = createServer((request, response) => {
    void (async () => {
      const path = request.url ?? '/';
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const { authorization } = request.headers;
      const answer = await fetch(new URL(path, target), {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(authorization === undefined ? {} : { authorization }) },
        body: Buffer.concat(chunks),
      });
      const { status } = answer;
      const body = await passOn({ path, status, body: await answer.text() });
      if (body === null) response.destroy();
      else response.writeHead(status, { 'content-type': answer.headers.get('content-type') ?? '' }).end(body);
    })().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
