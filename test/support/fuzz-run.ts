/** Sends hostile requests to a service and watches for the two things that must not happen. */
import type { FaultFleet } from './fault-fleet.js';
import { nextReport, prepareBody, protocol, statementOf, upsertOf } from './fault-fleet.js';
import { dice, fuzzInput, type FuzzInput, type FuzzWorld } from './fuzz-inputs.js';
import {
  observationPath,
  oracleMutationId,
  ownerPath,
  pagePath,
  type RawClient,
  type Reference,
  referenceIn,
} from './oracle-http.js';

export interface FuzzReport {
  readonly seed: number;
  readonly inputs: number;
  /** Answers by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Inputs that were answered with a 5xx, or not at all. */
  readonly failures: readonly { readonly input: FuzzInput; readonly status: number; readonly text: string }[];
}

/** Never in flight beyond this, so that "unavailable" is no excuse. */
const AT_ONCE = 8;

export interface FuzzOptions {
  readonly seed: number;
  readonly inputs: number;
  /** Ends earlier, between two inputs. */
  readonly until?: number;
}

export async function fuzz(client: RawClient, world: FuzzWorld, options: FuzzOptions): Promise<FuzzReport> {
  const roll = dice(options.seed);
  const statuses: Record<string, number> = {};
  const failures: FuzzReport['failures'][number][] = [];
  let inputs = 0;
  const work = async (): Promise<void> => {
    while (inputs < options.inputs && Date.now() < (options.until ?? Infinity)) {
      inputs += 1;
      const input = fuzzInput(roll, world);
      const { status, text } = await client.send(input.path, input.body, input.headers, input.verb);
      statuses[status] = (statuses[status] ?? 0) + 1;
      if (status === 0 || status >= 500) failures.push({ input, status, text });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return { seed: options.seed, inputs, statuses, failures };
}

/** What exists in a fleet, and bodies that were accepted there. */
export async function worldOf(client: RawClient, fleet: FaultFleet): Promise<FuzzWorld> {
  const { clusterId, runtime, scope, targetSet, nodes, keys } = fleet;
  const state = await client.done('readFleetCutoverState', { clusterId });
  const list = await client.done('listFleetCutoverRequiredVolumeHandoffs', { clusterId, cursor: null, limit: 1 });
  const aggregate: Reference | null = state.aggregate === null ? null : referenceIn(state.aggregate);
  // A spare node, so that a bent report that is accepted leaves the others as they are.
  const node = nodes.at(-1)!;
  const inventory: Reference = state.managerSnapshot;
  const credentials = await client.done('listCredentials', { clusterId, cursor: null, limit: 100 });
  const own = client.token.split('.')[1];
  const identifiers = [
    clusterId,
    fleet.serviceId,
    fleet.swarmServiceId,
    ...nodes.flatMap((each) => [each.nodeId, each.swarmNodeId]),
    ...list.entries.map((entry: { id: string }) => entry.id),
    // The fuzzer may revoke what it likes, but for the token that it needs.
    ...credentials.credentials
      .map((each: { credentialId: string }) => each.credentialId)
      .filter((id: string) => id !== own),
  ];
  const change = { expectedAggregate: aggregate, upserts: keys.slice(0, 3).map((key) => upsertOf(key, 77)) };
  const key = keys[0]!;
  return {
    token: client.token,
    identifiers,
    digests: [runtime.digest, scope.digest, inventory.digest, key.mountIdentityDigest],
    references: [
      runtime,
      scope,
      targetSet,
      inventory,
      ...(aggregate === null ? [] : [aggregate]),
      { ...scope, generation: 9 },
    ],
    cursors: list.nextCursor === null ? [] : [list.nextCursor],
    nodes: nodes.map(({ nodeId, token }) => ({ nodeId, token })),
    accepted: [
      { path: ownerPath('prepareFleetCutoverVolumeHandoffs'), body: prepareBody(fleet, change) },
      {
        path: ownerPath('classifyFleetCutoverScope'),
        body: {
          mutationId: oracleMutationId(),
          clusterId,
          runtime,
          inventory,
          expectedScope: scope,
          statement: statementOf(fleet),
        },
      },
      { path: observationPath, body: nextReport(fleet, nodes[0]!) },
      { path: observationPath, body: nextReport(fleet, node) },
      { path: pagePath, body: { nodeId: node.nodeId, nodeToken: node.token, protocol, aggregate, pageIndex: 0 } },
      {
        path: ownerPath('listFleetCutoverRequiredVolumeHandoffs'),
        body: { clusterId, cursor: list.nextCursor, limit: 3 },
      },
      { path: ownerPath('listFleetCutoverUncoveredVolumes'), body: { clusterId, cursor: null, limit: 3 } },
    ],
  };
}
