/** What one owner method is: everything that routes, client, documentation and coverage tests derive from. */
import { type Static, type TProperties, type TSchema, Type } from '@sinclair/typebox';
import { closed, Digest, Identifier, NaturalInteger, nullable } from './schema.js';

/** Who may call: every administrator, or administrators and read-only operators. */
export type TMethodCaller = 'administrator' | 'operator';

export interface OwnerMethod<Request extends TSchema = TSchema, Response extends TSchema = TSchema> {
  readonly namespace: 'fleet' | 'fleetcutover';
  readonly method: string;
  readonly caller: TMethodCaller;
  /** A mutation carries `mutationId`, may be a dry run, is audited and replayed. */
  readonly mutation: boolean;
  readonly maximumRequestBytes: number;
  readonly request: Request;
  readonly response: Response;
  readonly summary: string;
}

/** Position in the audit chain that covers the answer. */
export const AuditHead = closed({ chainId: Identifier, seq: NaturalInteger, digest: Digest });
export type IAuditHead = Static<typeof AuditHead>;

/** What the answer of every mutation says besides its result. */
const mutationAnswer = {
  /** The recorded result of an earlier, equal request; nothing was done now. */
  replayed: Type.Boolean(),
  /** Whether the result is still what is current. */
  current: Type.Boolean(),
  /** Nothing was written. */
  dryRun: Type.Boolean(),
  /** The audit chain's head after the mutation; null for a dry run. */
  audit: nullable(AuditHead),
};

const defaultRequestBytes = 65_536;

export function mutation<Q extends TProperties, R extends TProperties>(
  namespace: OwnerMethod['namespace'],
  method: string,
  summary: string,
  request: Q,
  response: R,
  maximumRequestBytes = defaultRequestBytes,
) {
  return {
    namespace,
    method,
    caller: 'administrator',
    mutation: true,
    maximumRequestBytes,
    request: closed({ mutationId: Identifier, dryRun: Type.Optional(Type.Boolean()), ...request }),
    response: closed({ ...mutationAnswer, ...response }),
    summary,
  } as const satisfies OwnerMethod;
}

export function query<Q extends TProperties, R extends TSchema>(
  namespace: OwnerMethod['namespace'],
  method: string,
  summary: string,
  request: Q,
  response: R,
) {
  return {
    namespace,
    method,
    caller: 'operator',
    mutation: false,
    maximumRequestBytes: defaultRequestBytes,
    request: closed(request),
    response,
    summary,
  } as const satisfies OwnerMethod;
}

/** Path of an owner method. */
export function methodPath(method: Pick<OwnerMethod, 'namespace' | 'method'>): string {
  return `/requests/${method.namespace}/${method.method}`;
}
