/** What a Spark keeps between its runs, in one directory of its own. */
import { join } from 'node:path';
import { Type } from '@sinclair/typebox';
import type { GenerationMemory } from '../../client/generation-memory.js';
import {
  FleetCutoverPreparedVolumeHandoffAggregate,
  FleetCutoverPreparedVolumeHandoffIntent,
} from '../../contract/handoff.js';
import { defineRecord } from '../../contract/record.js';
import { closed, FleetCutoverAcceptedEvidenceReference, type Reference } from '../../contract/schema.js';
import type { Static } from '@sinclair/typebox';
import { createGenerationFile } from './generation-file.js';
import { readStateFile, writeStateFile } from './state-file.js';

const KeptHandoffs = closed({
  /** Header of the proved set. */
  aggregate: FleetCutoverPreparedVolumeHandoffAggregate,
  /** The node's own handoffs of it, in page order. */
  handoffs: Type.Array(FleetCutoverPreparedVolumeHandoffIntent),
});
export type KeptHandoffs = Static<typeof KeptHandoffs>;

const runtimeRecord = defineRecord('IFleetCutoverAcceptedEvidenceReference', FleetCutoverAcceptedEvidenceReference);
const keptHandoffsRecord = defineRecord('IKeptHandoffs', KeptHandoffs);

export interface SparkState {
  readonly generations: GenerationMemory;
  /** The runtime reference of the last receipt; null before the first. One that got old counts for no gate, no more. */
  loadRuntime(): Promise<Reference | null>;
  storeRuntime(runtime: Reference): Promise<void>;
  /** The last proved set; null before the first. */
  loadHandoffs(): Promise<KeptHandoffs | null>;
  storeHandoffs(handoffs: KeptHandoffs): Promise<void>;
}

/** Nothing is touched before the first call; the directory is made by the first write. */
export function openSparkState(directory: string): SparkState {
  const runtimePath = join(directory, 'runtime.json');
  const handoffsPath = join(directory, 'handoffs.json');
  return {
    generations: createGenerationFile(join(directory, 'generations.json')),
    loadRuntime: () => readStateFile(runtimePath, runtimeRecord),
    storeRuntime: (runtime) => writeStateFile(runtimePath, runtime),
    loadHandoffs: () => readStateFile(handoffsPath, keptHandoffsRecord),
    storeHandoffs: (handoffs) => writeStateFile(handoffsPath, handoffs),
  };
}
