/** A captured Swarm: one directory per node, and what its people say about it. */
import { access, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Static, Type } from '@sinclair/typebox';
import { Value } from '@sinclair/typebox/value';
import { closed, nullable, oneOf, Reason } from '../contract/schema.js';
import { mountClasses, ScopeCoreflow, serviceClasses } from '../contract/scope.js';

const MountStatement = closed({ class: oneOf(...mountClasses), reason: Reason });

/** A scope statement by names, as people write it. What it leaves out is an application without classed mounts. */
export const Classification = closed({
  coreflow: ScopeCoreflow,
  services: Type.Record(
    Type.String(),
    closed({
      class: Type.Optional(oneOf(...serviceClasses)),
      reason: Type.Optional(nullable(Reason)),
      mounts: Type.Optional(Type.Record(Type.String(), MountStatement)),
    }),
  ),
  overlapConfirmations: Type.Array(
    closed({
      node: Type.String(),
      service: Type.Optional(Type.String()),
      container: Type.Optional(Type.String()),
      target: Type.String(),
      reason: Reason,
    }),
  ),
  dormantVolumes: Type.Array(closed({ node: Type.String(), volume: Type.String(), reason: Reason })),
});
export type IClassification = Static<typeof Classification>;

export interface Capture {
  /** Names of the node directories, which are the node ids of the demonstration. */
  readonly nodes: readonly string[];
  directoryOf(node: string): string;
  /** Null where the capture has no `classification.json`: then nobody has said anything. */
  readonly classification: IClassification | null;
}

/** Throws where the directory has no node with an `index.json`, or its classification is not one. */
export async function openCapture(directory: string): Promise<Capture> {
  const nodes: string[] = [];
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    if (entry.isDirectory() && (await exists(join(directory, entry.name, 'index.json')))) nodes.push(entry.name);
  }
  if (nodes.length === 0) throw new Error(`${directory} holds no directory with an index.json: it is no capture`);
  return {
    nodes: nodes.sort(),
    directoryOf: (node) => join(directory, node),
    classification: await readClassification(join(directory, 'classification.json')),
  };
}

async function readClassification(path: string): Promise<IClassification | null> {
  if (!(await exists(path))) return null;
  const value: unknown = JSON.parse(await readFile(path, 'utf8'));
  if (Value.Check(Classification, value)) return value;
  const first = Value.Errors(Classification, value).First();
  throw new Error(`${path}: ${first?.path ?? ''} ${first?.message ?? 'is not a classification'}`);
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
