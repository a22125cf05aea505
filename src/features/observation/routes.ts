/** Spark's report endpoint. */
import type { Refused } from '../../contract/problems.js';
import type { Deps } from '../../deps.js';
import type { SparkHandler } from '../../http/bind.js';
import type { NodeActor } from '../auth/actor.js';
import { takeReport } from './intake.js';

/** Takes an authenticated report elsewhere than on the event loop, and the bytes with it: they are not looked at again. */
export type LargeReportTaker = (actor: NodeActor, bytes: Uint8Array) => Promise<string | Refused>;

/** Parsing and deriving more than this many bytes would hold up everybody else. */
const largeReportBytes = 65_536;

export function swarmObservationHandler(deps: Deps, takeLarge: LargeReportTaker): SparkHandler {
  return (actor, bytes) =>
    bytes.byteLength > largeReportBytes ? takeLarge(actor, bytes) : takeReport(deps, actor, bytes);
}
