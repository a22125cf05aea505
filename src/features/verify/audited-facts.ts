/**
 * What the results of a cluster's audited mutations say, in chain order, of the cluster, its nodes and its credentials: the
 * last one wins. Mutations of one subject hold its lock until they are chained, so that this is the order of their effects.
 *
 * No audit row tells what agents change: a quarantine, which generation of a bearer is used, what a node reported; nor the id
 * of a node's credential before its first rotation, nor the public key with which a node was imported.
 */
import type { ICredentialState, IFleetCluster, IFleetNode } from '../../contract/fleet.js';
import type { IFleetCutoverIngressDesignation } from '../../contract/ingress.js';
import type { TMethodName } from '../../contract/methods.js';
import type { IFleetCutoverRuntime } from '../../contract/runtime.js';
import type { IFleetCutoverWriteOff } from '../../contract/write-off.js';
import { auditRows } from './audit-chains.js';
import { readCanonical } from './sealed-record.js';
import type { Verification } from './verification.js';

export interface AuditedNode {
  readonly seq: number;
  /** As the last answer that shows it; a node that was only imported was shown by none. */
  shown: Pick<IFleetNode, 'state' | 'quarantineReason' | 'corestorePublicKey' | 'corestorePublicKeyGeneration'> | null;
  tokenGeneration: number;
  sessionGeneration: number;
  /** Of its credentials, where a rotation has told it. */
  readonly credentialIds: Map<'node-token' | 'node-session', string>;
  /** How often it was bound to another swarm node, which its former one stays remembered for. */
  rejoins: number;
  released: boolean;
  revokedAt: number | null;
  writtenOffAt: number | null;
}

export interface AuditedCredential {
  readonly kind: 'coreflow-relay' | 'ingress-launcher';
  readonly subjectId: string;
  generation: number;
  revoked: boolean;
}

export interface AuditedFacts {
  cluster: IFleetCluster | null;
  readonly nodes: Map<string, AuditedNode>;
  /** Of the relay and of launchers. */
  readonly credentials: Map<string, AuditedCredential>;
  /** Position of the row that advanced to each generation of the runtime. */
  readonly advances: Map<number, number>;
}

/** Fields that a result of one of these methods may have. */
interface Result {
  readonly cluster?: IFleetCluster;
  readonly node?: IFleetNode;
  readonly nodes?: readonly { readonly nodeId: string; readonly created: boolean }[];
  readonly credential?: ICredentialState;
  readonly credentialId?: string;
  readonly designation?: IFleetCutoverIngressDesignation;
  readonly writeOff?: IFleetCutoverWriteOff;
  readonly runtime?: IFleetCutoverRuntime;
}

const methods: readonly TMethodName[] = [
  'createCluster',
  'registerNode',
  'importFleet',
  'rotateNodeCredential',
  'revokeNode',
  'releaseNodeQuarantine',
  'confirmNodeRejoin',
  'setCorestorePublicKey',
  'writeOffNode',
  'registerCoreflowRelay',
  'revokeFleetCutoverCoreflowCredential',
  'prepareFleetCutoverIngress',
  'revokeFleetCutoverIngressCredential',
  'advanceFleetCutoverPhase',
];

/** Holds a few facts per node and credential. Undefined: the chain is broken, so that nothing can be told from it. */
export async function auditedFacts(verification: Verification, clusterId: string): Promise<AuditedFacts | undefined> {
  const { findings, skipped } = verification;
  if (findings.hasAny('audit_rows', { chain_id: clusterId })) {
    skipped.push(`audited facts of cluster ${clusterId}: its audit chain is broken`);
    return undefined;
  }
  const facts: AuditedFacts = { cluster: null, nodes: new Map(), credentials: new Map(), advances: new Map() };
  for await (const rows of auditRows(verification, clusterId, methods)) {
    for (const { seq, method, result } of rows) {
      const value = readCanonical(result);
      if (typeof value === 'object' && value !== null) take(facts, seq, method as TMethodName, value);
    }
  }
  return facts;
}

function take(facts: AuditedFacts, seq: number, method: TMethodName, result: Result): void {
  const { cluster, node, nodes = [], credential, writeOff, runtime } = result;
  if (cluster !== undefined) facts.cluster ??= cluster;
  for (const { nodeId, created } of nodes) if (created) facts.nodes.set(nodeId, newNode(seq));
  if (node !== undefined) takeNode(facts, seq, method, node);
  if (writeOff?.state === 'confirmed' && writeOff.subject.kind === 'node') {
    const lost = facts.nodes.get(writeOff.subject.nodeId);
    if (lost !== undefined) lost.writtenOffAt ??= seq;
  }
  if (runtime !== undefined && runtime.generation > 1) facts.advances.set(runtime.generation, seq);
  if (credential !== undefined) takeCredential(facts, credential);
  if (method === 'revokeFleetCutoverCoreflowCredential') {
    const relay = facts.credentials.get(result.credentialId ?? '');
    if (relay !== undefined) relay.revoked = true;
  }
  if (result.designation !== undefined) {
    const { serviceId, credential: launcher } = result.designation;
    const { credentialId, generation } = launcher;
    facts.credentials.set(credentialId, { kind: 'ingress-launcher', subjectId: serviceId, generation, revoked: false });
  }
}

function newNode(seq: number): AuditedNode {
  return {
    seq,
    shown: null,
    tokenGeneration: 1,
    sessionGeneration: 1,
    credentialIds: new Map(),
    rejoins: 0,
    released: false,
    revokedAt: null,
    writtenOffAt: null,
  };
}

function takeNode(facts: AuditedFacts, seq: number, method: TMethodName, node: IFleetNode): void {
  const known = facts.nodes.get(node.nodeId) ?? newNode(seq);
  facts.nodes.set(node.nodeId, known);
  known.shown = node;
  known.tokenGeneration = node.tokenGeneration;
  known.sessionGeneration = node.sessionCredentialGeneration;
  if (method === 'confirmNodeRejoin') known.rejoins += 1;
  if (method === 'releaseNodeQuarantine') known.released = true;
  if (method === 'revokeNode') known.revokedAt ??= seq;
}

function takeCredential(facts: AuditedFacts, credential: ICredentialState): void {
  const { credentialId, kind, subjectId, newestGeneration, revoked } = credential;
  if (kind === 'coreflow-relay' || kind === 'ingress-launcher') {
    facts.credentials.set(credentialId, { kind, subjectId, generation: newestGeneration, revoked });
    return;
  }
  const node = facts.nodes.get(subjectId);
  if (node === undefined || kind === 'administrator') return;
  node.credentialIds.set(kind, credentialId);
  if (kind === 'node-token') node.tokenGeneration = newestGeneration;
  else node.sessionGeneration = newestGeneration;
}
