/** Spark's credentials stand inside the body: who sent it is known before the rest of it is parsed. */
import { refuse, type Refused } from '../../contract/problems.js';
import { type IProtocolOffer, negotiateProtocol, supportedProtocol } from '../../contract/protocol.js';
import type { ContractRecord } from '../../contract/record.js';
import { type JsonObject, type JsonValue, parseStrictJson, StrictJsonError } from '../../contract/strict-json.js';
import { scanTopLevelStrings } from '../../contract/top-level-scan.js';
import { Secret } from '../../secret.js';
import type { NodeActor } from './actor.js';

/** Longer values of `nodeId` and `nodeToken` are no identifier and no token. */
const maximumCredentialBytes = 256;
const credentialNames = ['nodeId', 'nodeToken'];
const credentialScan = { maximumValueBytes: maximumCredentialBytes, untilFound: true };
const maximumErrorLength = 256;

/**
 * Finds `nodeId` and `nodeToken` at the top level and gives them to `authenticate`; what follows them is not looked at: 4 MiB
 * would hold the event loop up for 20 ms. A second one there is a duplicate key, which the parser refuses.
 */
export function authenticateSparkBody(
  bytes: Uint8Array,
  authenticate: (nodeId: string, nodeToken: Secret) => Promise<NodeActor | Refused>,
): Promise<NodeActor | Refused> {
  let found: Map<string, string>;
  try {
    found = scanTopLevelStrings(bytes, credentialNames, credentialScan);
  } catch (error) {
    if (error instanceof StrictJsonError) return Promise.resolve(refuseJson(error));
    throw error;
  }
  const nodeId = found.get('nodeId');
  const nodeToken = found.get('nodeToken');
  if (nodeId === undefined || nodeToken === undefined) return Promise.resolve(refuse('credential-missing'));
  return authenticate(nodeId, new Secret(nodeToken));
}

function refuseJson(error: StrictJsonError): Refused {
  return refuse('body-invalid-json', { detail: `${error.code} at byte ${error.offset}` });
}

/** What the operations get: the token has done its work and goes no further. */
export interface SparkBody<T> {
  readonly request: Omit<T, 'nodeToken'>;
  readonly protocol: IProtocolOffer;
}

/** Parses and checks an authenticated body, and settles the protocol that it is answered in. */
export function readSparkBody<T extends { readonly protocol: IProtocolOffer; readonly nodeToken: string }>(
  record: ContractRecord<T>,
  bytes: Uint8Array,
): SparkBody<T> | Refused {
  let value: JsonValue;
  try {
    value = parseStrictJson(bytes);
  } catch (error) {
    if (error instanceof StrictJsonError) return refuseJson(error);
    throw error;
  }
  const offered = offerOf(value);
  if (offered !== undefined && offered !== supportedProtocol.major) {
    return refuse('protocol-unsupported', { supported: supportedProtocol });
  }
  const errors = record.check(value, bytes.byteLength);
  if (errors.length > 0)
    return refuse('body-schema', { errors: errors.map((error) => error.slice(0, maximumErrorLength)) });
  if (spellsNul(bytes) && holdsNul(value)) return refuse('body-schema', { errors: ['a string contains U+0000'] });
  const { nodeToken: _, ...request } = value as unknown as T;
  const protocol = negotiateProtocol(request.protocol);
  return protocol === null ? refuse('protocol-unsupported', { supported: supportedProtocol }) : { request, protocol };
}

/** The offered major, read before the schema: another major may have another schema. */
function offerOf(value: JsonValue): number | undefined {
  const protocol = memberOf(value, 'protocol');
  const major = protocol === undefined ? undefined : memberOf(protocol, 'major');
  return typeof major === 'number' ? major : undefined;
}

function memberOf(value: JsonValue, key: string): JsonValue | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return (value as JsonObject)[key];
}

/** How JSON writes U+0000; as it is it is refused by the parser. */
const escapedNul = Buffer.from('\\u0000');

/** Passing over the bytes costs a fraction of walking the value. */
function spellsNul(bytes: Uint8Array): boolean {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).includes(escapedNul);
}

/** Postgres cannot store U+0000 in text. */
function holdsNul(value: JsonValue): boolean {
  if (typeof value === 'string') return value.includes('\0');
  if (typeof value !== 'object' || value === null) return false;
  if (Array.isArray(value)) return value.some(holdsNul);
  return Object.entries(value).some(([key, member]) => key.includes('\0') || holdsNul(member));
}
