import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseDatabaseUrl } from '../../src/db/connection.js';
import { Secret } from '../../src/secret.js';

/** A way to the database that breaks when a client has sent a given text. */
export interface CuttingProxy {
  readonly url: Secret;
  /**
   * `before`: the text does not reach the server. `after`: it does, and when the server has answered it with the same
   * words (the tag of a command), the connection breaks without the client having seen any of it. Applies once.
   */
  cut(text: string, when: 'before' | 'after'): void;
  close(): Promise<void>;
}

/** Listens on a Unix socket of its own, in front of the server that the URL names. */
export async function openCuttingProxy(target: Secret): Promise<CuttingProxy> {
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-proxy-'));
  const address = parseDatabaseUrl(target);
  const sockets = new Set<Socket>();
  let trap: { readonly text: string; readonly when: 'before' | 'after' } | undefined;
  const proxy = createServer((client) => {
    const server = address.host.startsWith('/')
      ? connect(join(address.host, `.s.PGSQL.${address.port}`))
      : connect(address.port, address.host);
    let awaited: string | undefined;
    let answer = '';
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => [client, server].forEach((each) => each.destroy()));
    }
    client.on('data', (chunk: Buffer) => {
      if (trap !== undefined && chunk.includes(trap.text)) {
        if (trap.when === 'before') client.destroy();
        awaited = trap.text;
        trap = undefined;
      }
      if (!client.destroyed) server.write(chunk);
    });
    server.on('data', (chunk: Buffer) => {
      if (awaited === undefined) return client.write(chunk);
      answer += chunk.toString('latin1');
      return answer.includes(awaited) && client.destroy();
    });
  });
  await new Promise<void>((resolve) => proxy.listen(join(directory, '.s.PGSQL.5432'), resolve));
  const url = new URL(target.reveal());
  url.host = encodeURIComponent(directory);
  url.port = '';
  return {
    url: new Secret(url.href),
    cut: (text, when) => {
      trap = { text, when };
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => proxy.close(resolve));
      await rm(directory, { recursive: true });
    },
  };
}
