/**
 * A service's labels without what they could give away: people put credentials of proxies and registries into labels.
 */
import { bareDigest, type TSha256Digest } from '../../contract/digest.js';
import type { IObservedSwarmService } from '../../contract/observation.js';
import { compareText } from '../../contract/schema.js';

/** Labels that are told with their values: which stack a service belongs to, and which part it plays. */
export const reportedLabels: ReadonlySet<string> = new Set([
  'com.docker.stack.image',
  'com.docker.stack.namespace',
  'serve.zone.role',
  'serve.zone.service',
]);

/** Longer than any image name (255) or role; a longer value is somebody's data and goes into the digest. */
const maximumReportedValueLength = 512;

export interface ReducedLabels {
  readonly labels: IObservedSwarmService['labels'];
  /** Bare digest of all other labels as `[key, value]` pairs in the order of their keys; null where there are none. */
  readonly otherLabelsDigest: TSha256Digest | null;
}

export function reduceLabels(labels: Readonly<Record<string, string>> | null | undefined): ReducedLabels {
  const pairs = Object.entries(labels ?? {}).sort(([left], [right]) => compareText(left, right));
  const reported = ([key, value]: readonly [string, string]) =>
    reportedLabels.has(key) && value.length <= maximumReportedValueLength;
  const others = pairs.filter((pair) => !reported(pair));
  return {
    labels: pairs.filter(reported).map(([key, value]) => ({ key, value })),
    otherLabelsDigest: others.length === 0 ? null : bareDigest(others),
  };
}
