/**
 * The catalogue of refusals: one place for every stable `code`, its HTTP status, title, and who acts on it.
 * Wire form is RFC 9457 `application/problem+json`.
 */
import { type Static, Type } from '@sinclair/typebox';
import { FleetCutoverGate } from './gate.js';
import { closed, DockerText, FleetCutoverAcceptedEvidenceReference, nullable, oneOf } from './schema.js';

type Actor = 'caller' | 'administrator' | 'operator';

interface CatalogueEntry {
  readonly status: number;
  readonly title: string;
  /** Who has to do something before the same request can succeed. */
  readonly acts: Actor;
}

const entry = (status: number, title: string, acts: Actor = 'caller'): CatalogueEntry => ({ status, title, acts });

export const problemCatalogue = {
  // 400: the bytes or the shape
  'body-invalid-json': entry(400, 'The body is not strict JSON'),
  'body-schema': entry(400, 'The body does not match the method’s schema'),
  // 401, 403
  'credential-missing': entry(401, 'No credential was given'),
  'credential-refused': entry(401, 'The credential is unknown, retired or revoked'),
  'role-refused': entry(403, 'The principal’s role does not permit this method'),
  'node-quarantined': entry(403, 'The node is quarantined', 'administrator'),
  'node-revoked': entry(403, 'The node is revoked', 'administrator'),
  // 404
  'route-unknown': entry(404, 'There is no such route or method'),
  'cluster-unknown': entry(404, 'There is no such cluster'),
  'node-unknown': entry(404, 'There is no such node'),
  'service-unknown': entry(404, 'There is no such service'),
  'credential-unknown': entry(404, 'There is no such credential'),
  'record-unknown': entry(404, 'There is no such record'),
  'page-unknown': entry(404, 'The aggregate has no such page'),
  'method-not-allowed': entry(405, 'The route takes POST'),
  'request-timeout': entry(408, 'The request took too long to arrive'),
  // 409: a compare failed
  'runtime-stale': entry(409, 'The runtime reference is not the current one'),
  'scope-stale': entry(409, 'The scope reference is not the current one'),
  'target-set-stale': entry(409, 'The target set reference is not the current one'),
  'aggregate-stale': entry(409, 'The aggregate reference is not the current one'),
  'spec-stale': entry(409, 'The service spec reference is not the current one'),
  'inventory-stale': entry(409, 'The inventory is not an accepted, complete manager snapshot that can be admitted'),
  'cluster-exists': entry(409, 'The cluster exists with other facts'),
  'node-exists': entry(409, 'The node exists with other facts'),
  'principal-exists': entry(409, 'The principal exists already'),
  'swarm-node-taken': entry(409, 'Another node reports this swarm node id', 'administrator'),
  'swarm-node-changed': entry(409, 'The node reports another swarm node id than the bound one', 'administrator'),
  'swarm-mismatch': entry(409, 'The report is of another swarm than the cluster’s', 'administrator'),
  'sequence-stale': entry(409, 'The observation sequence does not rise'),
  'reporter-replaced': entry(409, 'The reporter session was replaced; two reporters are live', 'administrator'),
  // 410
  'pin-expired': entry(410, 'The pinned revision is no longer kept'),
  // 411, 413, 415
  'body-too-large': entry(413, 'The body exceeds the method’s byte limit'),
  'media-type': entry(415, 'The body must be application/json'),
  // 422: refused by the rules
  'mutation-id-reused': entry(422, 'The mutation id was used with another body, method or caller'),
  'gate-unmet': entry(422, 'At least one gate of the phase is not met', 'administrator'),
  'phase-order': entry(422, 'Phases go forward one by one'),
  'write-off-refused': entry(422, 'The write-off is refused'),
  'write-off-stale': entry(409, 'The proposal is not the current one'),
  'node-written-off': entry(403, 'The node is written off for good', 'administrator'),
  'designation-stale': entry(409, 'The designation reference is not the current one'),
  'designation-other-service': entry(
    422,
    'Another service is designated; replacing it is another flow',
    'administrator',
  ),
  'service-retired': entry(422, 'The service is retired', 'administrator'),
  'spec-not-held': entry(422, 'The spec revision is released and not held', 'administrator'),
  'ports-configured': entry(422, 'The spec publishes ports', 'administrator'),
  'ports-observed': entry(422, 'The service holds ports under Pallet', 'administrator'),
  'ports-unknown': entry(422, 'A target node has no current port report', 'operator'),
  'sealing-unavailable': entry(422, 'No key-encryption key is configured', 'operator'),
  'relay-unknown': entry(404, 'The cluster has no registered Coreflow relay'),
  'phase-refused': entry(422, 'The cluster’s phase does not permit this act', 'administrator'),
  'batch-refused': entry(422, 'At least one entry of the batch is refused'),
  'pin-unknown': entry(422, 'The pinned revision is not one of this cluster’s'),
  'scope-refused': entry(422, 'The scope statement is refused'),
  'target-set-refused': entry(422, 'The target set is refused'),
  'spec-refused': entry(422, 'The service spec is refused'),
  'fleet-refused': entry(422, 'The fleet document is refused'),
  'last-administrator': entry(422, 'The last administrator token cannot be revoked'),
  'quarantine-absent': entry(422, 'The node is not quarantined'),
  'rejoin-absent': entry(422, 'The node reported no other swarm node id'),
  'cursor-invalid': entry(422, 'The cursor is not one of this listing’s'),
  'protocol-unsupported': entry(426, 'The protocol’s major is not spoken here'),
  'rate-limited': entry(429, 'Too many refused credentials from here; wait'),
  // 5xx
  'record-corrupt': entry(500, 'A stored record does not match its digest', 'operator'),
  internal: entry(500, 'The service failed', 'operator'),
  'outcome-unknown': entry(503, 'The answer of the database was lost; repeat the same request'),
  unavailable: entry(503, 'The service cannot answer now; repeat later'),
} as const satisfies Record<string, CatalogueEntry>;

export type TProblemCode = keyof typeof problemCatalogue;

/** Codes of single entries of a refused batch. */
export const batchEntryCodes = [
  'entry-duplicate',
  'entry-not-required',
  'entry-blocked',
  'entry-absent',
  'entry-too-large',
  'mount-path-mismatch',
  'node-unknown',
  'service-unknown',
  'service-retired',
  'service-owned-twice',
  'service-not-in-inventory',
  'service-has-entries',
  'service-id-required',
  'service-id-refused',
  'reason-required',
  'mount-duplicate',
  'coreflow-mismatch',
  'strays-only',
  'entry-written-off',
  'spec-differs',
  'node-differs',
] as const;
export type TBatchEntryCode = (typeof batchEntryCodes)[number];

export const ProblemEntry = closed({
  /** List of the request that the entry is in, e.g. `upserts`. */
  list: Type.String(),
  index: Type.Integer({ minimum: 0 }),
  code: oneOf(...batchEntryCodes),
  detail: Type.Optional(DockerText),
});
export type IProblemEntry = Static<typeof ProblemEntry>;

/** `application/problem+json`. */
export const ProblemDocument = closed({
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer(),
  code: Type.String(),
  detail: Type.Optional(Type.String()),
  /** Which expectation of the request failed. */
  expectation: Type.Optional(Type.String()),
  /** The current reference that the expectation was compared with; null where nothing exists. */
  current: Type.Optional(nullable(FleetCutoverAcceptedEvidenceReference)),
  entries: Type.Optional(Type.Array(ProblemEntry)),
  errors: Type.Optional(Type.Array(Type.String())),
  /** Gates that are not met, as `explainFleetCutover` shows them. */
  gates: Type.Optional(Type.Array(FleetCutoverGate)),
  supported: Type.Optional(closed({ major: Type.Integer(), minor: Type.Integer() })),
  mutationOutcome: Type.Optional(oneOf('not-applied', 'unknown')),
  /** The very same request may be sent again. */
  retrySafe: Type.Optional(Type.Boolean()),
});
export type IProblemDocument = Static<typeof ProblemDocument>;

/** A refusal inside the program: the catalogue's code and what applies to it. Never carries a secret. */
export type Problem = { readonly code: TProblemCode } & Omit<IProblemDocument, 'type' | 'title' | 'status' | 'code'>;

export type Refused = { readonly kind: 'refused'; readonly problem: Problem };

export function refuse(code: TProblemCode, more: Omit<Problem, 'code'> = {}): Refused {
  return { kind: 'refused', problem: { code, ...more } };
}

/** Loser of a compare-and-swap: which expectation failed and what is current. Nothing was applied. */
export function refuseStale(
  code: TProblemCode,
  expectation: string,
  current: Static<typeof FleetCutoverAcceptedEvidenceReference> | null,
): Refused {
  return refuse(code, { expectation, current, mutationOutcome: 'not-applied', retrySafe: false });
}

export function problemDocument(problem: Problem): IProblemDocument {
  const { status, title } = problemCatalogue[problem.code];
  const { code, ...more } = problem;
  return { type: `urn:serve.zone:fleet-cutover:${code}`, title, status, code, ...more };
}
