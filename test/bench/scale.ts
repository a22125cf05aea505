/** How large the benchmark's fleets are. */
import { maximumObservationCensusBytes } from '../../src/contract/limits.js';

export interface HeldFenceScale {
  /** Of the fleet in which every node covers every page. */
  readonly nodes: number;
  /** Of every fleet's aggregate. */
  readonly pages: number;
  /** Of the two fleets in which one node's report is timed. */
  readonly fewNodes: number;
  readonly manyNodes: number;
  /** Reports that are timed in each of the two, every one of another page; fewer than there are pages. */
  readonly timedReports: number;
}

export interface Scale {
  readonly nodes: number;
  readonly volumesPerNode: number;
  /** Numbers of prepared handoffs at which mutations are timed; the last is the ceiling. */
  readonly present: readonly number[];
  /** Mutations that are timed at each of them. */
  readonly samples: number;
  /** Volumes of one node that are left for insertions into the complete set. */
  readonly insertions: number;
  readonly updates: number;
  /** Of one observation. */
  readonly observationBytes: number;
  readonly observations: number;
  /** Seconds of page reads, and half as many for warming up. */
  readonly readSeconds: number;
  readonly heldFences: HeldFenceScale;
}

/** Room for `nodeId`, token and what else stands around the census. */
const observationMargin = 2_048;

export const fullScale: Scale = {
  nodes: 64,
  volumesPerNode: 2_048,
  present: [1_024, 16_384, 131_072],
  samples: 200,
  insertions: 3,
  updates: 15,
  observationBytes: maximumObservationCensusBytes - observationMargin,
  observations: 7,
  readSeconds: 16,
  heldFences: { nodes: 100, pages: 256, fewNodes: 10, manyNodes: 1_000, timedReports: 200 },
};

/** Tells whether the benchmark itself works, in less than a minute. */
export const smallScale: Scale = {
  ...fullScale,
  nodes: 16,
  volumesPerNode: 256,
  present: [512, 1_024, 4_096],
  samples: 16,
  updates: 5,
  observations: 3,
  readSeconds: 4,
  heldFences: { nodes: 10, pages: 24, fewNodes: 4, manyNodes: 40, timedReports: 16 },
};
