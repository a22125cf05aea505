/**
 * The envelope of `POST /typedrequest`, as the npm package `@api.global/typedrequest` 3.3 sends and reads it.
 *
 * 1. Its client sends `{ method, request, response: null, correlation }` and reads `response`, or `error` as
 *    `{ text, data }`, of an answer with a 2xx status. Any other status it reports without the body.
 * 2. `retry` is never sent: beside `error` the client fails on it, and alone it makes the client repeat without an end.
 * 3. `localData` and `serverData` are what the package's own server keeps about a request; from outside they are refused.
 */
import { type Static, Type } from '@sinclair/typebox';
import { methodNames, methods } from './methods.js';
import { ProblemDocument } from './problems.js';
import { closed } from './schema.js';

export const typedRequestEndpoint = '/typedrequest';

/** Bytes of the envelope beside the request that it carries. */
const maximumEnvelopeBytes = 4_096;

/** The largest request of a method, in its envelope. */
export const maximumTypedRequestBytes =
  Math.max(...methodNames.map((name) => methods[name].maximumRequestBytes)) + maximumEnvelopeBytes;

/** Where the package's client lets no header be set, the token travels where serve.zone keeps one: in `jwt`. */
const tokenMember = Type.String({ maxLength: 512 });

/**
 * The member `identity` of a request, which no method has by itself. Of a whole serve.zone identity only `jwt` is read;
 * what else it says of its holder is believed nobody.
 */
export const TypedRequestIdentity = Type.Object({ jwt: tokenMember });

const Correlation = (phase: 'request' | 'response') =>
  closed({ id: Type.String({ maxLength: 128 }), phase: Type.Literal(phase) });

export const TypedRequestEnvelope = closed({
  /** A method of the table, e.g. `readFleetCutoverState`. */
  method: Type.String({ maxLength: 128 }),
  /** The method's request; `identity` beside its own members. */
  request: Type.Object({ identity: Type.Optional(TypedRequestIdentity) }),
  response: Type.Optional(Type.Null()),
  correlation: Type.Optional(Correlation('request')),
  authInfo: Type.Optional(closed({ jwt: tokenMember })),
});
export type ITypedRequestEnvelope = Static<typeof TypedRequestEnvelope>;

/** `request` is never sent back: it may hold a token. */
export const TypedRequestAnswer = Type.Union([
  closed({
    method: Type.String(),
    request: Type.Null(),
    /** The method's response. */
    response: Type.Object({}),
    localData: Type.Null(),
    correlation: Type.Optional(Correlation('response')),
  }),
  closed({
    method: Type.String(),
    request: Type.Null(),
    response: Type.Null(),
    localData: Type.Null(),
    correlation: Type.Optional(Correlation('response')),
    /** The client throws it as `TypedResponseError` with `errorText` and `errorData`. */
    error: closed({ text: Type.String(), data: ProblemDocument }),
  }),
]);
