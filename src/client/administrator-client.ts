/** The owner API as functions, derived from the contract's table of methods. */
import { canonicalizeStrictJson } from '../contract/canonical-json.js';
import { AdministratorToken } from '../contract/fleet.js';
import { methodPath } from '../contract/method.js';
import {
  type MethodRequest,
  type MethodResponse,
  methodNames,
  methods,
  type TMethodName,
} from '../contract/methods.js';
import { ContractError, defineRecord } from '../contract/record.js';
import { readAnswer } from './answer.js';
import type { BearerToken } from './bearer-token.js';
import { methodRecords } from './method-records.js';
import { repeatUntilAnswered, type RepetitionOptions } from './repetition.js';
import { openTransport, type Transport, type TransportOptions } from './transport.js';

export interface AdministratorClientOptions extends TransportOptions {
  /** An administrator's or operator's token. */
  readonly token: BearerToken;
  readonly repetition?: RepetitionOptions;
}

export interface CallOptions {
  /** Ends the call. A mutation that is ended may have been applied: repeat it with the same `mutationId` to know. */
  readonly signal?: AbortSignal;
}

type MethodCalls = {
  readonly [N in TMethodName]: (request: MethodRequest<N>, options?: CallOptions) => Promise<MethodResponse<N>>;
};

/**
 * One function per method, and `call` for a method whose name is a value.
 *
 * A call checks the request against the contract before it sends it, and the answer before it returns it. A request whose
 * answer is lost is repeated as it is, a bounded number of times: a mutation's `mutationId` (the caller's own, or one of
 * `newMutationId`) makes the repeat a replay, so that the answer tells what became of the first.
 *
 * Every call throws: `ContractError` for a request that was not sent because the contract doesn't allow it,
 * `ProblemError` for a refusal, `TransportError` where no answer came (its `outcome` says whether the service may have
 * acted), `ContractViolationError` for an answer that the contract doesn't allow.
 */
export type AdministratorClient = MethodCalls & {
  call<N extends TMethodName>(method: N, request: MethodRequest<N>, options?: CallOptions): Promise<MethodResponse<N>>;
  /** Waits for what is under way and closes the connections. */
  close(): Promise<void>;
};

/** Longer than the longest list of the owner API, 4,096 created nodes with two secrets each, and than any snapshot. */
const maximumAnswerBytes = 16 * 1024 * 1024;

const tokenRecord = defineRecord('IAdministratorToken', AdministratorToken);

/** @throws ServiceUrlError, see `openTransport` */
export function createAdministratorClient(options: AdministratorClientOptions): AdministratorClient {
  const transport = openTransport(options);
  const { token, repetition } = options;
  const call = <N extends TMethodName>(method: N, request: MethodRequest<N>, callOptions: CallOptions = {}) =>
    callMethod({ transport, token, repetition }, method, request, callOptions.signal);
  const calls = Object.fromEntries(
    methodNames.map((name) => [
      name,
      (request: MethodRequest<typeof name>, callOptions?: CallOptions) => call(name, request, callOptions),
    ]),
  ) as unknown as MethodCalls;
  return Object.freeze({ ...calls, call, close: () => transport.close() });
}

interface Caller {
  readonly transport: Transport;
  readonly token: BearerToken;
  readonly repetition: RepetitionOptions | undefined;
}

async function callMethod<N extends TMethodName>(
  { transport, token, repetition }: Caller,
  method: N,
  request: MethodRequest<N>,
  signal: AbortSignal | undefined,
): Promise<MethodResponse<N>> {
  const records = methodRecords(method);
  const bearer = token.reveal();
  if (!tokenRecord.is(bearer))
    throw new ContractError(tokenRecord.name, ['is not an administrator’s or operator’s token']);
  const body = encodeRequest(method, records.request.snapshot(request));
  return await repeatUntilAnswered(
    methods[method].mutation ? 'change' : 'read',
    async () =>
      readAnswer(
        await transport.post({
          path: methodPath(methods[method]),
          body,
          bearer,
          maximumAnswerBytes,
          maximumProblemBytes: maximumAnswerBytes,
          signal,
        }),
        records.response,
      ),
    repetition,
    signal,
  );
}

/** @throws ContractError for more bytes than the method takes */
function encodeRequest(method: TMethodName, request: unknown): Uint8Array {
  const body = new TextEncoder().encode(canonicalizeStrictJson(request));
  const { maximumRequestBytes } = methods[method];
  if (body.byteLength > maximumRequestBytes) {
    throw new ContractError(method, [`takes ${maximumRequestBytes} bytes, the request has ${body.byteLength}`]);
  }
  return body;
}
