/** Owner methods and the Spark endpoint of prepared volume handoffs. */
import { sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord } from '../../contract/handoff.js';
import type { Deps } from '../../deps.js';
import type { SparkHandler } from '../../http/bind.js';
import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { isRefused } from '../../refusal.js';
import { readSparkBody } from '../auth/spark-body.js';
import { prepareFleetCutoverVolumeHandoffs, rederiveFleetCutoverVolumeHandoffs } from './operations.js';
import * as queries from './queries.js';
import { SparkPageReader } from './spark-page.js';

export const volumeHandoffHandlers = {
  prepareFleetCutoverVolumeHandoffs,
  rederiveFleetCutoverVolumeHandoffs,
  readFleetCutoverState: queries.readFleetCutoverState,
  listFleetCutoverRequiredVolumeHandoffs: queries.listFleetCutoverRequiredVolumeHandoffs,
  listFleetCutoverBlockers: queries.listFleetCutoverBlockers,
  listFleetCutoverTaskVerdicts: queries.listFleetCutoverTaskVerdicts,
  listFleetCutoverUncoveredVolumes: queries.listFleetCutoverUncoveredVolumes,
  readFleetCutoverVolumeHandoffAggregate: queries.readFleetCutoverVolumeHandoffAggregate,
  readFleetCutoverVolumeHandoffPage: queries.readFleetCutoverVolumeHandoffPage,
  readFleetCutoverVolumeHandoff: queries.readFleetCutoverVolumeHandoff,
} satisfies Partial<OwnerHandlers>;

/** Quarantined nodes may read pages still: what they read grants nothing. */
export function preparedVolumeHandoffsHandler(deps: Deps): SparkHandler {
  const pages = new SparkPageReader(deps);
  return (actor, bytes) => {
    const body = readSparkBody(sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord, bytes);
    return isRefused(body) ? Promise.resolve(body) : pages.read(actor, body.request, body.protocol);
  };
}
