/** Constants of the contract; names and values are the source's. */

/** Bounds of the fleet cutover contract. */
export const fleetCutoverContract = Object.freeze({
  /** Non-terminal tasks of one manager snapshot. */
  maximumTasks: 4096,
  /** Mounts of one container. */
  maximumMountsPerOwner: 32,
  /** Upserts and removals of one mutation together. */
  maximumPreparedVolumeHandoffMutationEntries: 32,
  /** Pages of one aggregate; 4,096 × 32 = 131,072 handoffs. */
  maximumPreparedVolumeHandoffPages: 4096,
} as const);

/** 4,096 × 32 = 131,072: as many handoffs as one fleet can have. */
export const maximumPreparedVolumeHandoffs =
  fleetCutoverContract.maximumTasks * fleetCutoverContract.maximumMountsPerOwner;

/** Bytes of the canonical encoding of one handoff, so that 32 always fit into a page response. */
export const maximumPreparedVolumeHandoffBytes = 7168;

/** Endpoints of the Spark side of the wire and their byte limits. */
export const sparkSwarmNodeContracts = Object.freeze({
  swarmObservation: Object.freeze({
    endpoint: '/spark/swarm-nodes/swarm-observation',
    maxRequestBytes: 4_325_376,
    maxResponseBytes: 2048,
  } as const),
  fleetCutoverPreparedVolumeHandoffs: Object.freeze({
    endpoint: '/spark/swarm-nodes/fleet-cutover-prepared-volume-handoffs',
    maxRequestBytes: 4096,
    maxResponseBytes: 262_144,
  } as const),
  /** Ours: an agent waits for the next change here instead of asking again and again. */
  fleetCutoverWatch: Object.freeze({
    endpoint: '/spark/swarm-nodes/fleet-cutover-watch',
    maxRequestBytes: 4096,
    maxResponseBytes: 2048,
  } as const),
  protocolRefusalStatus: 426,
} as const);

/** An observation's bytes without its held-fence member: 4 MiB for the census snapshots. */
export const maximumObservationCensusBytes = 4_194_304;
/** Bytes of the held-fence member alone. */
export const maximumHeldFenceEvidenceBytes = 131_072;
