/** From the bytes of an authenticated report to its receipt; runs where the bytes are, off the event loop if they are many. */
import { maximumHeldFenceEvidenceBytes, maximumObservationCensusBytes } from '../../contract/limits.js';
import { sparkSwarmObservationRequestRecord } from '../../contract/observation.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { StrictJsonError } from '../../contract/strict-json.js';
import { topLevelMemberSpan } from '../../contract/top-level-scan.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import type { NodeActor } from '../auth/actor.js';
import { readSparkBody } from '../auth/spark-body.js';
import { observe } from './operations.js';

/** The receipt's canonical JSON. */
export async function takeReport(deps: Deps, actor: NodeActor, bytes: Uint8Array): Promise<string | Refused> {
  if (actor.state === 'quarantined') return refuse('node-quarantined');
  const oversize = refuseOversize(bytes);
  if (oversize !== null) return oversize;
  const read = readSparkBody(sparkSwarmObservationRequestRecord, bytes);
  if (isRefused(read)) return read;
  return observe(deps, actor, { observation: read.request.observation, protocol: read.protocol });
}

/** Held fences have a budget of their own and take nothing of the census's. Measured on the bytes, before they are parsed. */
function refuseOversize(bytes: Uint8Array): Refused | null {
  const fenceBytes = heldFenceBytes(bytes);
  if (fenceBytes > maximumHeldFenceEvidenceBytes) {
    return refuse('body-too-large', { detail: `held fences may have ${maximumHeldFenceEvidenceBytes} bytes` });
  }
  if (bytes.byteLength - fenceBytes > maximumObservationCensusBytes) {
    return refuse('body-too-large', {
      detail: `the report without held fences may have ${maximumObservationCensusBytes} bytes`,
    });
  }
  return null;
}

/** 0 where there is no such member; what is no JSON is refused by the parser. */
function heldFenceBytes(bytes: Uint8Array): number {
  try {
    const observation = topLevelMemberSpan(bytes, 'observation');
    if (observation === null) return 0;
    const inner = bytes.subarray(observation.start, observation.end);
    const fences = topLevelMemberSpan(inner, 'fleetCutoverHeldVolumeFences');
    return fences === null ? 0 : fences.end - fences.start;
  } catch (error) {
    if (error instanceof StrictJsonError) return 0;
    throw error;
  }
}
