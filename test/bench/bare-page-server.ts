/** A process with a Fastify route that parses the same bodies and sends the same bytes, and does nothing else. */
import { readFile } from 'node:fs/promises';
import { fastify } from 'fastify';

export interface BareServerOrder {
  readonly path: string;
  /** Files with JSON arrays of the request bodies and of the answers to them. */
  readonly bodies: string;
  readonly answers: string;
}

interface PageRequest {
  readonly nodeId: string;
  readonly pageIndex: number;
}

process.on('message', (order: BareServerOrder) => {
  void serve(order).then((url) => process.send?.({ url }));
});
process.on('disconnect', () => process.exit());
process.send?.({});

async function serve(order: BareServerOrder): Promise<string> {
  const read = async (path: string) => JSON.parse(await readFile(path, 'utf8')) as string[];
  const [bodies, texts] = await Promise.all([read(order.bodies), read(order.answers)]);
  const keyOf = ({ nodeId, pageIndex }: PageRequest) => `${nodeId} ${pageIndex}`;
  const answers = new Map(
    bodies.map((body, index) => [keyOf(JSON.parse(body) as PageRequest), Buffer.from(texts[index]!)]),
  );
  const app = fastify();
  app.post(order.path, (request, reply) => {
    void reply.type('application/json').send(answers.get(keyOf(request.body as PageRequest)));
  });
  return app.listen({ host: '127.0.0.1', port: 0 });
}
