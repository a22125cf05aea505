/** Receipts as the service would give them. */
import type { ISparkSwarmObservationAcceptedReceipt, TSparkSwarmObservation } from '../../src/contract/observation.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import type { ReceivedRequest } from './answering-server.js';
import { referenceNamed } from './handoff-set.js';

export function observationOf({ json }: ReceivedRequest): TSparkSwarmObservation {
  return json['observation'] as TSparkSwarmObservation;
}

/** The receipt of the report that `request` is. */
export function receiptOf(
  request: ReceivedRequest,
  more: Partial<ISparkSwarmObservationAcceptedReceipt> = {},
): ISparkSwarmObservationAcceptedReceipt {
  const { reporterSessionId, observationSequence, fleetCutoverHeldVolumeFences: evidence } = observationOf(request);
  return {
    state: 'accepted',
    nodeId: String(request.json['nodeId']),
    reporterSessionId,
    observationSequence,
    runtime: referenceNamed('rt-1'),
    localSnapshot: { state: 'absent', reference: null },
    managerSnapshot: { state: 'absent', reference: null },
    heldVolumeFences:
      evidence === undefined
        ? { state: 'absent', code: null, aggregate: null, coveredPages: 0 }
        : { state: 'accepted', code: null, aggregate: evidence.aggregate, coveredPages: 1 },
    protocol: supportedProtocol,
    ...more,
  };
}
