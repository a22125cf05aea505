/** What is published as `fleet-cutover/agents`: the reference Spark and Pallet, and the ways to read a Docker engine. */
export { capturedSource } from './docker/captured-source.js';
export { engineSource, type EngineSourceOptions } from './docker/engine-source.js';
export type { DockerSource } from './docker/source.js';
export { observeNode, type ObserveContext, type SwarmObservationBody } from './docker/observe-node.js';
export type { SparkFacts } from './docker/local-snapshot.js';
export {
  FenceStoreError,
  openFenceStore,
  type FenceStore,
  type FenceStoreOptions,
  type ProvedShare,
} from './pallet/fence-store.js';
export { createReferencePallet, type NodePallet, type ReferencePalletOptions } from './pallet/node-pallet.js';
export {
  createSparkAgent,
  type SparkAgentOptions,
  type SparkRun,
  type ForwardedHolds,
  type SparkAgent,
} from './spark/agent.js';
export type { SparkEvent, SparkLog } from './spark/log.js';
export { runSparkLoop, type SparkLoopOptions } from './spark/loop.js';
export { openSparkState, type KeptHandoffs, type SparkState } from './spark/spark-state.js';
export { startSpark, type SparkSettings } from './spark/start.js';
export { StateFileError } from './spark/state-file.js';
export { systemClock, type Clock } from '../clock.js';
export { systemRandom, type Random } from '../random.js';
export { Secret } from '../secret.js';
