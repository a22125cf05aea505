/**
 * The hash chain over accepted mutations (system rule 12).
 *
 * 1. A cluster's chain is named by the cluster's id, an organization's by `org-` and 40 hex; the two never meet, because
 *    cluster ids of that form are refused.
 * 2. A chain begins with the digest of its own name, so that no chain can be passed off as another.
 * 3. `chain = sha256(previous ‖ row digest)`, both as 32 raw bytes. Positions count from 1 without a gap.
 */
import { bareDigest, digestDomain, domainDigest } from '../../contract/digest.js';

const chainDomain = digestDomain('IFleetCutoverAuditChain');
const rowDomain = digestDomain('IFleetCutoverAuditRow');

/** The chain of what belongs to no cluster. */
export function organizationChainId(organizationId: string): string {
  return `org-${hexOf(bareDigest({ auditChainOfOrganization: organizationId })).slice(0, 40)}`;
}

/** Whether a cluster of this id would take an organization's place among the chains. */
export function isOrganizationChainId(id: string): boolean {
  return /^org-[0-9a-f]{40}$/.test(id);
}

/** What stands before the first row: 32 bytes. */
export function genesisDigest(chainId: string): Buffer {
  return digestBytes(domainDigest(chainDomain, { chainId }));
}

/** The facts of one row, all of which its digest covers; its place is covered by the chain. */
export interface AuditFacts {
  readonly chainId: string;
  readonly organizationId: string;
  readonly clusterId: string | null;
  readonly mutationId: string;
  readonly credentialId: string;
  readonly principalId: string;
  readonly method: string;
  readonly requestDigest: string;
  /** Bare digest of the recorded result. */
  readonly resultDigest: string;
  /** Unix ms. */
  readonly at: number;
}

/** 32 bytes over the canonical JSON of the row's facts. */
export function rowDigest(facts: AuditFacts): Buffer {
  return digestBytes(domainDigest(rowDomain, { ...facts }));
}

/** The 32 raw bytes of `sha256:<hex>`. */
export function digestBytes(digest: string): Buffer {
  return Buffer.from(hexOf(digest), 'hex');
}

/** `sha256:<hex>` of 32 raw bytes, as the wire writes a chain's head. */
export function digestText(bytes: Uint8Array): `sha256:${string}` {
  return `sha256:${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')}`;
}

function hexOf(digest: string): string {
  return digest.slice('sha256:'.length);
}
