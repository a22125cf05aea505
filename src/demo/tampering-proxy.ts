/** Passes requests on to the service, and changes one digit of a digest in every page that comes back. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface TamperingProxy {
  readonly url: string;
  close(): Promise<void>;
}

export async function openTamperingProxy(target: string): Promise<TamperingProxy> {
  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const answer = await fetch(new URL(request.url ?? '/', target), {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: Buffer.concat(chunks),
      });
      const body = tamper(await answer.text());
      response.writeHead(answer.status, { 'content-type': 'application/json' }).end(body);
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

/** The first handoff digest that the page commits to gets another last digit. */
function tamper(body: string): string {
  return body.replace(
    /("handoffs":\[\{"digest":"sha256:[0-9a-f]{63})([0-9a-f])/,
    (_match, head: string, last: string) => {
      return head + (last === '0' ? '1' : '0');
    },
  );
}
