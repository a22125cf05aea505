/** The killable service as one file: a process that dies at hundreds of points has to come up quickly. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'vite';

const ROOT = join(import.meta.dirname, '..', '..');

export interface KillableProgram {
  /** To be run by node as it is. */
  readonly file: string;
  remove(): Promise<void>;
}

/** Bundles it with its libraries; those that read or start files of their own stay where they are. */
export async function bundleKillableService(): Promise<KillableProgram> {
  const parent = join(ROOT, '.data');
  await mkdir(parent, { recursive: true });
  // As deep as its source, so that it finds the migrations; inside the project, so that it finds what is not bundled; and not in
  // `dist`, which other tests pack and copy.
  const directory = await mkdtemp(join(parent, 'killable-'));
  await build({
    configFile: false,
    root: ROOT,
    logLevel: 'error',
    ssr: { noExternal: true, external: ['piscina', 'pino', '@fastify/swagger', '@fastify/swagger-ui'] },
    build: {
      ssr: join(ROOT, 'test', 'support', 'kill-service.ts'),
      outDir: directory,
      target: 'node20',
      minify: false,
    },
  });
  return {
    file: join(directory, 'kill-service.js'),
    remove: () => rm(directory, { recursive: true, force: true }),
  };
}
