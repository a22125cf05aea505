/** The gates' facts as they concern one node or service: pure. What is missing elsewhere is left out, and not counted. */
import type { GateFacts, RelayFacts, Shortage } from './gates.js';

export type ConcernsSubject = (item: Shortage['first'][number]) => boolean;

/** `facts` have to name everything that is missing, not the first of it. */
export function factsAbout(facts: GateFacts, concerns: ConcernsSubject): GateFacts {
  const about = ({ first }: Shortage): Shortage => {
    const found = first.filter(concerns);
    return { count: found.length, first: found };
  };
  return {
    ...facts,
    scope: facts.scope === null ? null : { ...facts.scope, unclassified: about(facts.scope.unclassified) },
    unobservedTargets: about(facts.unobservedTargets),
    unobservedNodes: about(facts.unobservedNodes),
    entriesOutsideTargets: about(facts.entriesOutsideTargets),
    quarantined: about(facts.quarantined),
    blockers: about(facts.blockers),
    missingHandoffs: about(facts.missingHandoffs),
    uncovered: about(facts.uncovered),
    vanishedVolumes: about(facts.vanishedVolumes),
    unkeptVolumes: about(facts.unkeptVolumes),
    unjudgedVolumes: about(facts.unjudgedVolumes),
    unjudgedRevoked: about(facts.unjudgedRevoked),
    relay: relayAbout(facts.relay, about),
    runningServices: about(facts.runningServices),
    runningTasks: about(facts.runningTasks),
    activeContainers: about(facts.activeContainers),
    confirmedContainers: about(facts.confirmedContainers),
    palletNotReady: about(facts.palletNotReady),
  };
}

function relayAbout(relay: RelayFacts, about: (shortage: Shortage) => Shortage): RelayFacts {
  switch (relay.kind) {
    case 'undetermined':
      return relay;
    case 'none':
      return { ...relay, labelled: about(relay.labelled) };
    case 'classified':
      return { ...relay, containers: about(relay.containers), oldModeAccepted: about(relay.oldModeAccepted) };
    default: {
      const unexpected: never = relay;
      throw new TypeError(`unexpected relay ${JSON.stringify(unexpected)}`);
    }
  }
}
