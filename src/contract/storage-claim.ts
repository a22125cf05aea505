/**
 * Runtime filesystem storage claims: what Cloudly intends (`IRuntimeStorageClaimIntent`, grants nothing) and the full
 * claim that a storage provider made ready (`IRuntimeStorageClaim`).
 */
import type { Static } from '@sinclair/typebox';
import { bareDigest } from './digest.js';
import { ContractError, defineRecord } from './record.js';
import {
  closed,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  NaturalInteger,
  nullable,
  oneOf,
  PositiveInteger,
  sameReference,
} from './schema.js';
import { Type } from '@sinclair/typebox';

/** Absolute, normalised: no empty, `.` or `..` segment, no trailing slash, no NUL. */
export const MountPath = Type.String({ pattern: '^(/(?!\\.{1,2}(/|$))[^/\\u0000]+)+$', maxLength: 4096 });

const mountPathPattern = new RegExp(MountPath.pattern!);
/** Whether a request can name the path. */
export function isMountPath(path: string): boolean {
  return path.length <= MountPath.maxLength! && mountPathPattern.test(path);
}

/** The full canonical retained `ReadWriteOnce` filesystem request. */
export const RuntimeStorageFilesystemRequest = closed({
  requestId: Identifier,
  kind: Type.Literal('filesystem'),
  mountPath: MountPath,
  accessMode: Type.Literal('ReadWriteOnce'),
  reclaimPolicy: Type.Literal('Retain'),
  /** Bytes, or null where the administrator asks for none in particular. */
  requestedCapacityBytes: nullable(PositiveInteger),
});
export type IRuntimeStorageFilesystemRequest = Static<typeof RuntimeStorageFilesystemRequest>;

export const RuntimeStorageClaimRequestedFilesystemBinding = closed({
  serviceId: Identifier,
  request: RuntimeStorageFilesystemRequest,
  /** Bare digest of `request`. */
  requestDigest: Digest,
});
export type IRuntimeStorageClaimRequestedFilesystemBinding = Static<
  typeof RuntimeStorageClaimRequestedFilesystemBinding
>;

const claimIdentity = {
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  controllerId: Identifier,
  controllerEpoch: PositiveInteger,
  organizationId: Identifier,
  clusterId: Identifier,
  nodeId: Identifier,
  runtimeNamespace: Identifier,
  serviceId: Identifier,
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
};

/** Cloudly's precursor of a claim. It cannot state a provider fact. */
export const RuntimeStorageClaimIntent = closed({
  ...claimIdentity,
  binding: RuntimeStorageClaimRequestedFilesystemBinding,
});
export type IRuntimeStorageClaimIntent = Static<typeof RuntimeStorageClaimIntent>;

/** A ready claim: the intent's facts and what only the provider can add. */
export const RuntimeStorageClaim = closed({
  ...claimIdentity,
  binding: closed({
    serviceId: Identifier,
    request: RuntimeStorageFilesystemRequest,
    requestDigest: Digest,
    providerBindingId: Identifier,
    providerBindingGeneration: PositiveInteger,
    policy: Identifier,
    observedGeneration: PositiveInteger,
    status: Type.Literal('ready'),
    /** Opaque to Cloudly; never required to equal a volume id. */
    resourceRef: Type.String({ minLength: 1, maxLength: 512 }),
    capabilities: closed({
      persistence: Type.Literal('persistent'),
      topology: Type.Literal('single-node'),
      accessModes: Type.Array(oneOf('ReadWriteOnce'), { minItems: 1, maxItems: 1 }),
      capacityBytes: nullable(NaturalInteger),
    }),
  }),
});
export type IRuntimeStorageClaim = Static<typeof RuntimeStorageClaim>;

type ClaimOrIntent = IRuntimeStorageClaimIntent | IRuntimeStorageClaim;

function bindingRules(value: ClaimOrIntent): string[] {
  const errors: string[] = [];
  if (value.binding.serviceId !== value.serviceId) errors.push('/binding/serviceId must be the claim’s service');
  if (bareDigest(value.binding.request) !== value.binding.requestDigest) {
    errors.push('/binding/requestDigest is not the digest of the request');
  }
  if (
    value.predecessor !== null &&
    value.predecessor.generation >= value.generation &&
    value.predecessor.id === value.id
  ) {
    errors.push('/predecessor must be an earlier generation');
  }
  return errors;
}

export const runtimeStorageClaimIntentRecord = defineRecord('IRuntimeStorageClaimIntent', RuntimeStorageClaimIntent, {
  sealed: true,
  rules: bindingRules,
});
export const runtimeStorageClaimRecord = defineRecord('IRuntimeStorageClaim', RuntimeStorageClaim, {
  sealed: true,
  rules: (claim) => [
    ...bindingRules(claim),
    ...(claim.binding.observedGeneration === claim.binding.providerBindingGeneration
      ? []
      : ['/binding/observedGeneration must match the provider binding’s generation']),
  ],
});
export const snapshotRuntimeStorageClaimIntent = runtimeStorageClaimIntentRecord.snapshot;
export const snapshotRuntimeStorageClaim = runtimeStorageClaimRecord.snapshot;
export const validateRuntimeStorageClaimIntent = async (value: unknown): Promise<string[]> =>
  runtimeStorageClaimIntentRecord.validate(value);
export const validateRuntimeStorageClaim = async (value: unknown): Promise<string[]> =>
  runtimeStorageClaimRecord.validate(value);

const preservedFacts = [
  'id',
  'generation',
  'controllerId',
  'controllerEpoch',
  'organizationId',
  'clusterId',
  'nodeId',
  'runtimeNamespace',
  'serviceId',
] as const;

/**
 * Joins a ready claim to the intent that it must preserve: both digests, every Cloudly-owned identity and the requested
 * filesystem facts. A content check only: it says nothing about currentness, peers or fences. Throws {@link ContractError}.
 */
export function bindRuntimeStorageClaimToIntent(
  claim: unknown,
  intent: unknown,
): { readonly claim: IRuntimeStorageClaim; readonly intent: IRuntimeStorageClaimIntent } {
  const readyClaim = snapshotRuntimeStorageClaim(claim);
  const desired = snapshotRuntimeStorageClaimIntent(intent);
  const errors: string[] = [];
  for (const fact of preservedFacts) {
    if (readyClaim[fact] !== desired[fact]) errors.push(`the claim must preserve the intent’s ${fact}`);
  }
  if (!sameReference(readyClaim.predecessor, desired.predecessor)) {
    errors.push('the claim must preserve the intent’s predecessor');
  }
  if (readyClaim.binding.requestDigest !== desired.binding.requestDigest) {
    errors.push('the claim must preserve the requested filesystem');
  }
  if (errors.length > 0) throw new ContractError('bindRuntimeStorageClaimToIntent', errors);
  return Object.freeze({ claim: readyClaim, intent: desired });
}
