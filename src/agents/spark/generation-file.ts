/** The memory of accepted generations as a file. */
import { Type } from '@sinclair/typebox';
import type { AcceptedGeneration, GenerationMemory } from '../../client/generation-memory.js';
import { defineRecord } from '../../contract/record.js';
import { closed, FleetCutoverAcceptedEvidenceReference, Identifier } from '../../contract/schema.js';
import { readStateFile, writeStateFile } from './state-file.js';

const acceptedGenerationRecord = defineRecord(
  'IAcceptedGeneration',
  closed({
    clusterId: Identifier,
    aggregate: FleetCutoverAcceptedEvidenceReference,
    leftIds: Type.Array(Identifier),
  }),
);

/** The file is created by the first update. One memory object per file, and one process. */
export function createGenerationFile(path: string): GenerationMemory {
  const load = (): Promise<AcceptedGeneration | null> => readStateFile(path, acceptedGenerationRecord);
  let last: Promise<unknown> = Promise.resolve();
  return {
    load,
    update: (change) => {
      const done = last.then(async () => writeStateFile(path, change(await load())));
      last = done.catch(() => {}); // the next change doesn't fail for this one, whose caller is told
      return done;
    },
  };
}
