/** From the bytes of an authenticated report to its receipt; runs where the bytes are, off the event loop if they are many. */
import { maximumObservationCensusBytes } from '../../contract/limits.js';
import { sparkSwarmObservationRequestRecord } from '../../contract/observation.js';
import { refuse, type Refused } from '../../contract/problems.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import type { NodeActor } from '../auth/actor.js';
import { readSparkBody } from '../auth/spark-body.js';
import { observe } from './operations.js';

/** The receipt's canonical JSON. */
export async function takeReport(deps: Deps, actor: NodeActor, bytes: Uint8Array): Promise<string | Refused> {
  if (bytes.byteLength > maximumObservationCensusBytes) {
    return refuse('body-too-large', { detail: `the report without held fences may have ${maximumObservationCensusBytes} bytes` });
  }
  if (actor.state === 'quarantined') return refuse('node-quarantined');
  const read = readSparkBody(sparkSwarmObservationRequestRecord, bytes);
  if (isRefused(read)) return read;
  return observe(deps, actor, { observation: read.request.observation, protocol: read.protocol });
}
