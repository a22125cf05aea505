/** One observation of a node, ready to be numbered, dated and sent. */
import type { TSparkSwarmObservation, unknownObservationReasons } from '../../contract/observation.js';
import { Identifier } from '../../contract/schema.js';
import type { IEngineInfo } from './answers.js';
import { type CensusOptions, censusSignal } from './census.js';
import { asCensusFailure, CensusFailure, type CensusFailureReason } from './census-failure.js';
import { fitSnapshots } from './census-size.js';
import { collectLocalSnapshot } from './collect-local-snapshot.js';
import { collectManagerSnapshot } from './collect-manager-snapshot.js';
import type { SparkFacts } from './local-snapshot.js';
import type { DockerSource } from './source.js';

type EachWithout<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

/** `TSparkSwarmObservation` without what the sender adds: its session, sequence and clock. */
export type SwarmObservationBody = EachWithout<
  TSparkSwarmObservation,
  'reporterSessionId' | 'observationSequence' | 'observedAt'
>;

type UnknownReason = (typeof unknownObservationReasons)[number];

export interface ObserveContext extends SparkFacts, CensusOptions {}

/**
 * What the source's engine says about its node now. Never throws: an engine that can't say whether it is in a swarm
 * gives `unknown` with the reason, a census that isn't whole a snapshot with `complete: false`.
 */
export async function observeNode(source: DockerSource, context: ObserveContext): Promise<SwarmObservationBody> {
  const census = { ...context, signal: censusSignal(context) };
  let swarm: SwarmState;
  try {
    swarm = swarmStateOf(await source.info(census.signal));
  } catch (error) {
    const failure = asCensusFailure(error);
    context.onFailure?.(failure);
    return { state: 'unknown', reason: unknownReason(failure.reason) };
  }
  switch (swarm.state) {
    case 'unknown':
      return swarm;
    case 'inactive': {
      const { local } = fitSnapshots({
        local: await collectLocalSnapshot(source, { ...census, controlAvailable: false }),
      });
      return { state: 'inactive', fleetCutoverLocalNodeSnapshot: local };
    }
    case 'member': {
      const { controlAvailable } = swarm;
      const { local, manager } = fitSnapshots({
        local: await collectLocalSnapshot(source, { ...census, controlAvailable }),
        ...(controlAvailable ? { manager: await collectManagerSnapshot(source, census) } : {}),
      });
      return {
        ...swarm,
        fleetCutoverLocalNodeSnapshot: local,
        ...(manager === undefined ? {} : { fleetCutoverManagerSnapshot: manager }),
      };
    }
  }
}

type SwarmState =
  | { readonly state: 'member'; readonly localSwarmNodeId: string; readonly controlAvailable: boolean }
  | { readonly state: 'inactive' }
  | { readonly state: 'unknown'; readonly reason: UnknownReason };

const identifier = new RegExp(Identifier.pattern ?? '');

function swarmStateOf({ Swarm: swarm }: IEngineInfo): SwarmState {
  switch (swarm.LocalNodeState) {
    case 'active':
      if (!identifier.test(swarm.NodeID)) throw new CensusFailure('engine-error', 'GET /info answered no node id');
      return { state: 'member', localSwarmNodeId: swarm.NodeID, controlAvailable: swarm.ControlAvailable };
    case 'inactive':
      return { state: 'inactive' };
    case 'pending':
      return { state: 'unknown', reason: 'swarm-pending' };
    case 'locked':
      return { state: 'unknown', reason: 'swarm-locked' };
    case 'error':
      return { state: 'unknown', reason: 'swarm-error' };
    default:
      throw new CensusFailure('engine-error', 'GET /info answered an unknown state of the swarm');
  }
}

function unknownReason(reason: CensusFailureReason): UnknownReason {
  switch (reason) {
    case 'engine-unreachable':
      return 'docker-unreachable';
    case 'timeout':
      return 'timeout';
    case 'engine-error':
    case 'inconsistent':
    case 'truncated':
      return 'docker-error';
  }
}
