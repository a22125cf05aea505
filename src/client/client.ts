/** What is published as `fleet-cutover/client`: both sides' typed clients and the reader that proves what it has read. */
export {
  createAdministratorClient,
  type AdministratorClientOptions,
  type CallOptions,
  type AdministratorClient,
} from './administrator-client.js';
export type { BearerToken } from './bearer-token.js';
export {
  ProblemError,
  TransportError,
  ContractViolationError,
  type AnsweredProblemCode,
  type TransportErrorCode,
} from './errors.js';
export { createVolatileGenerationMemory, type AcceptedGeneration, type GenerationMemory } from './generation-memory.js';
export { newMutationId } from './mutation-id.js';
export { PageReaderError, type PageReaderErrorCode } from './page-reader-error.js';
export {
  readPreparedVolumeHandoffs,
  type PageReaderOptions,
  type ProvedPage,
  type ProvedHandoffSet,
  type NoHandoffSet,
} from './page-reader.js';
export type { RepetitionOptions } from './repetition.js';
export { ServiceUrlError } from './service-url.js';
export { createSparkClient, type SparkClientOptions, type SparkClient } from './spark-client.js';
export type { TransportOptions } from './transport.js';
