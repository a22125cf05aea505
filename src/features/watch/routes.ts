/** The agents' door to the watch. */
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { type ISparkWatchFleetCutoverResponse, sparkWatchFleetCutoverRequestRecord } from '../../contract/watch.js';
import type { SparkHandler } from '../../http/bind.js';
import { isRefused } from '../../refusal.js';
import { readSparkBody } from '../auth/spark-body.js';
import type { Watch } from './watch.js';

export function sparkWatchHandler(watch: Watch): SparkHandler {
  return async (actor, bytes) => {
    const body = readSparkBody(sparkWatchFleetCutoverRequestRecord, bytes);
    if (isRefused(body)) return body;
    const { cursor, timeoutMs } = body.request;
    const answer = await watch.watchCluster(actor.clusterId, cursor, timeoutMs);
    const response: ISparkWatchFleetCutoverResponse = { ...answer, nodeId: actor.nodeId, protocol: body.protocol };
    return canonicalizeStrictJson(response);
  };
}
