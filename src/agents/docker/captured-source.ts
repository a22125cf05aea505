/** An engine's answers as they were captured into a directory: for tests, demonstrations and support. */
import { readFile } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { Type } from '@sinclair/typebox';
import { CensusFailure } from './census-failure.js';
import { answerOf, type DockerSource, type EngineRequest, parseAnswer, sourceOver } from './source.js';

const indexAnswer = answerOf(
  Type.Array(
    Type.Object({
      /** Path and query with the API version, e.g. `/v1.41/containers/json?all=1`. */
      path: Type.String(),
      /** File of the body, relative to the directory. */
      file: Type.String(),
      status: Type.Integer(),
    }),
  ),
);

/**
 * A source over a directory with an `index.json`. Statuses other than 200 fail as they would from the engine, a path
 * that was not captured answers 404, and a directory that can't be read is an engine that can't be reached.
 */
export function capturedSource(directory: string): DockerSource {
  const read = async (file: string): Promise<Uint8Array> => {
    const path = join(directory, file);
    if (!path.startsWith(join(directory, sep))) throw new CensusFailure('engine-error', 'a captured file is elsewhere');
    try {
      return await readFile(path);
    } catch {
      throw new CensusFailure('engine-unreachable', 'a captured file cannot be read');
    }
  };
  const entries = async () => parseAnswer('index.json', await read('index.json'), indexAnswer);
  let index: ReturnType<typeof entries> | undefined;

  return sourceOver(async (request) => {
    const asked = pathAndQuery(request);
    const entry = (await (index ??= entries())).find(({ path }) => path.replace(/^\/v\d+\.\d+(?=\/)/, '') === asked);
    return entry === undefined
      ? { status: 404, body: new Uint8Array() }
      : { status: entry.status, body: await read(entry.file) };
  });
}

function pathAndQuery({ path, query }: EngineRequest): string {
  return query === undefined ? path : `${path}?${new URLSearchParams(query).toString()}`;
}
