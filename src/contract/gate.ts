/** Gates of the phases, and what `explainFleetCutover` says about them. */
import { type Static, Type } from '@sinclair/typebox';
import {
  closed,
  DockerText,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  NaturalInteger,
  nullable,
  oneOf,
} from './schema.js';

export const gateCodes = [
  'scope-complete',
  'inventory-current',
  'targets-accepted',
  'targets-observed',
  'targets-cover-entries',
  'no-quarantine',
  'no-blocker',
  'aggregate-complete',
  'aggregate-current',
  'coverage-complete',
  'volumes-present',
  'anonymous-volumes-kept',
  'coreflow-identified',
  'applications-stopped',
  'containers-stopped',
  'no-stray',
  'confirmed-overlaps-gone',
  'pallet-ready',
  'coreflow-retired',
  'coreflow-credential-revoked',
] as const;
export type TGateCode = (typeof gateCodes)[number];

/** Who acts next where a gate is unmet. */
export const gateActors = ['administrator', 'spark', 'pallet', 'nobody'] as const;

export const GateShortage = closed({
  nodeId: nullable(Identifier),
  swarmServiceId: nullable(Identifier),
  detail: DockerText,
});

export const FleetCutoverGate = closed({
  code: oneOf(...gateCodes),
  met: Type.Boolean(),
  /** How many things are missing; 0 where it is met. */
  missingCount: NaturalInteger,
  /** The first of them. */
  missing: Type.Array(GateShortage, { maxItems: 10 }),
  /** Accepted records that the answer rests on, with how long ago each was last seen, in ms on the database's clock. */
  evidence: Type.Array(closed({ reference: FleetCutoverAcceptedEvidenceReference, ageMs: nullable(NaturalInteger) }), {
    maxItems: 10,
  }),
  acts: oneOf(...gateActors),
});
export type IFleetCutoverGate = Static<typeof FleetCutoverGate>;

export const FleetCutoverCoverage = closed({
  /** Pages of the current aggregate times target nodes. */
  total: NaturalInteger,
  covered: NaturalInteger,
  /** Reports that are still needed. */
  remaining: NaturalInteger,
  /** Target nodes that have covered every page. */
  completeNodes: NaturalInteger,
  targetNodes: NaturalInteger,
  /** Pages that were covered within the last minute. */
  coveredLastMinute: NaturalInteger,
});
export type IFleetCutoverCoverage = Static<typeof FleetCutoverCoverage>;
