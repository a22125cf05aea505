/** Spark's side of the wire: reports of what Docker has, and pages of what was prepared. */
import { canonicalizeStrictJson } from '../contract/canonical-json.js';
import {
  type ISparkGetFleetCutoverPreparedVolumeHandoffsRequest,
  SparkGetFleetCutoverPreparedVolumeHandoffsResponse,
  sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord,
  type TSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
  validateSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
} from '../contract/handoff.js';
import { maximumObservationCensusBytes, sparkSwarmNodeContracts } from '../contract/limits.js';
import {
  type ISparkSwarmObservationAcceptedReceipt,
  sparkSwarmObservationAcceptedReceiptRecord,
  sparkSwarmObservationRequestRecord,
  type TSparkSwarmObservation,
} from '../contract/observation.js';
import { type IProtocolOffer, supportedProtocol } from '../contract/protocol.js';
import { ContractError, type ContractRecord, defineRecord } from '../contract/record.js';
import { type Reference, sameReference } from '../contract/schema.js';
import { readAnswer } from './answer.js';
import {
  type ISparkWatchFleetCutoverResponse,
  sparkWatchFleetCutoverRequestRecord,
  sparkWatchFleetCutoverResponseRecord,
} from '../contract/watch.js';
import type { BearerToken } from './bearer-token.js';
import { ContractViolationError } from './errors.js';
import { pageFault } from './page-fault.js';
import { PageReaderError } from './page-reader-error.js';
import { repeatUntilAnswered, type RepetitionOptions, type RequestEffect } from './repetition.js';
import { openTransport, type TransportOptions } from './transport.js';

export interface SparkClientOptions extends TransportOptions {
  readonly nodeId: string;
  /** The node's Spark token; it travels in the body. */
  readonly nodeToken: BearerToken;
  readonly repetition?: RepetitionOptions;
}

/**
 * Every call throws: `ContractError` for what was not sent because the contract doesn't allow it, `ProblemError` for a
 * refusal (`protocol-unsupported`, status 426, with the `supported` offer: this build can't talk to that service),
 * `TransportError` where no answer came, `ContractViolationError` for an answer that the contract doesn't allow.
 */
export interface SparkClient {
  readonly nodeId: string;
  /**
   * Reports one observation and gives its receipt. The same observation is the same bytes: where the answer was lost, here
   * or in an earlier call, sending it again gets the same receipt.
   */
  reportObservation(
    observation: TSparkSwarmObservation,
    signal?: AbortSignal,
  ): Promise<ISparkSwarmObservationAcceptedReceipt>;
  /**
   * One page with this node's handoffs on it, checked for everything that one answer can prove; null pins nothing and
   * selects the current complete revision. Only `readPreparedVolumeHandoffs` proves a set.
   *
   * @throws PageReaderError, a `ContractViolationError` that says which check failed
   */
  getPreparedVolumeHandoffs(
    aggregate: Reference | null,
    pageIndex: number,
    signal?: AbortSignal,
  ): Promise<TSparkGetFleetCutoverPreparedVolumeHandoffsResponse>;
  /** Waits for the cluster's next change, `timeoutMs` (at most 60,000) at the longest. */
  watch(cursor: string | null, timeoutMs: number, signal?: AbortSignal): Promise<ISparkWatchFleetCutoverResponse>;
  /** Waits for what is under way and closes the connections. */
  close(): Promise<void>;
}

/** A refusal says more than a receipt, which has 2,048 bytes. */
const maximumProblemBytes = 65_536;

/** Shape alone: what is behind the shape is for the contract's validator. */
const pageResponseRecord = defineRecord(
  'TSparkGetFleetCutoverPreparedVolumeHandoffsResponse',
  SparkGetFleetCutoverPreparedVolumeHandoffsResponse,
);

/** @throws ServiceUrlError, see `openTransport` */
export function createSparkClient(options: SparkClientOptions): SparkClient {
  const { nodeId, nodeToken, repetition } = options;
  const transport = openTransport(options);

  const send = async <T>(exchange: SparkExchange<T>, signal: AbortSignal | undefined): Promise<T> => {
    const { endpoint, maxResponseBytes: maximumAnswerBytes } = exchange.limits;
    const request = { path: endpoint, body: exchange.body, maximumAnswerBytes, maximumProblemBytes, signal };
    const attempt = async () => readAnswer(await transport.post(request), exchange.answer);
    return await repeatUntilAnswered(exchange.effect, attempt, repetition, signal);
  };

  return Object.freeze({
    nodeId,

    async reportObservation(observation: TSparkSwarmObservation, signal?: AbortSignal) {
      const request = sparkSwarmObservationRequestRecord.snapshot({
        nodeId,
        nodeToken: nodeToken.reveal(),
        protocol: supportedProtocol,
        observation,
      });
      const limits = sparkSwarmNodeContracts.swarmObservation;
      const body = encodeBounded('ISparkSwarmObservationRequest', request, limits.maxRequestBytes);
      refuseOverCensus(request.observation, body.byteLength);
      const answer = sparkSwarmObservationAcceptedReceiptRecord;
      const receipt = await send({ limits, body, answer, effect: 'change' }, signal);
      refuseErrors(receiptErrors(receipt, nodeId, request.observation));
      return receipt;
    },

    async getPreparedVolumeHandoffs(aggregate: Reference | null, pageIndex: number, signal?: AbortSignal) {
      const request = sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord.snapshot({
        nodeId,
        nodeToken: nodeToken.reveal(),
        protocol: supportedProtocol,
        aggregate,
        pageIndex,
      });
      const limits = sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs;
      const body = encodeBounded('ISparkGetFleetCutoverPreparedVolumeHandoffsRequest', request, limits.maxRequestBytes);
      const response = await send({ limits, body, answer: pageResponseRecord, effect: 'read' }, signal);
      await refusePageFault(request, response);
      return response;
    },

    async watch(cursor: string | null, timeoutMs: number, signal?: AbortSignal) {
      const request = sparkWatchFleetCutoverRequestRecord.snapshot({
        nodeId,
        nodeToken: nodeToken.reveal(),
        protocol: supportedProtocol,
        cursor,
        timeoutMs,
      });
      const limits = sparkSwarmNodeContracts.fleetCutoverWatch;
      const body = encodeBounded('ISparkWatchFleetCutoverRequest', request, limits.maxRequestBytes);
      return await send({ limits, body, answer: sparkWatchFleetCutoverResponseRecord, effect: 'read' }, signal);
    },

    close: () => transport.close(),
  });
}

interface SparkExchange<T> {
  readonly limits: { readonly endpoint: string; readonly maxResponseBytes: number };
  readonly body: Uint8Array;
  readonly answer: ContractRecord<T>;
  readonly effect: RequestEffect;
}

/** @throws ContractError for more bytes than the endpoint takes */
function encodeBounded(name: string, request: unknown, maximumBytes: number): Uint8Array {
  const body = encode(request);
  if (body.byteLength > maximumBytes) {
    throw new ContractError(name, [`has ${body.byteLength} bytes, at most ${maximumBytes} are taken`]);
  }
  return body;
}

/** Held fences have a budget of their own, which the contract checks; all other bytes share the census's. */
function refuseOverCensus(observation: TSparkSwarmObservation, bodyBytes: number): void {
  const evidence = observation.fleetCutoverHeldVolumeFences;
  const evidenceBytes = evidence === undefined ? 0 : encode(evidence).byteLength;
  const bytes = bodyBytes - evidenceBytes;
  if (bytes <= maximumObservationCensusBytes) return;
  throw new ContractError('ISparkSwarmObservationRequest', [
    `has ${bytes} bytes without its held fences, at most ${maximumObservationCensusBytes} are taken`,
  ]);
}

function encode(value: unknown): Uint8Array {
  return new TextEncoder().encode(canonicalizeStrictJson(value));
}

function receiptErrors(
  receipt: ISparkSwarmObservationAcceptedReceipt,
  nodeId: string,
  reported: TSparkSwarmObservation,
): string[] {
  const errors: string[] = [];
  if (receipt.nodeId !== nodeId) errors.push('the receipt names another node');
  if (
    receipt.reporterSessionId !== reported.reporterSessionId ||
    receipt.observationSequence !== reported.observationSequence
  ) {
    errors.push('the receipt is of another report');
  }
  if (!speaksOffer(receipt.protocol)) errors.push('the receipt speaks another protocol than was offered');
  errors.push(...fenceReceiptErrors(receipt.heldVolumeFences, reported));
  return errors;
}

/** What became of the held fences is said where some were sent, and only there; accepted ones under their own pin. */
function fenceReceiptErrors(
  { state, code, aggregate }: ISparkSwarmObservationAcceptedReceipt['heldVolumeFences'],
  { fleetCutoverHeldVolumeFences: evidence }: TSparkSwarmObservation,
): string[] {
  const errors: string[] = [];
  if ((state === 'absent') !== (evidence === undefined)) errors.push('the receipt is of other held fences');
  if ((state === 'refused') !== (code !== null)) errors.push('the receipt refuses held fences without a reason');
  if (state === 'accepted' && evidence !== undefined && !sameReference(aggregate, evidence.aggregate)) {
    errors.push('the receipt accepts held fences of another aggregate');
  }
  return errors;
}

function refuseErrors(errors: readonly string[]): void {
  if (errors.length > 0) throw new ContractViolationError(errors);
}

async function refusePageFault(
  request: ISparkGetFleetCutoverPreparedVolumeHandoffsRequest,
  response: TSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
): Promise<void> {
  if (!speaksOffer(response.protocol)) throw new PageReaderError('protocol-mismatch');
  const errors = await validateSparkGetFleetCutoverPreparedVolumeHandoffsResponse(response, request);
  if (errors.length > 0) throw new PageReaderError(pageFault(request, response), errors);
}

/** The same major, and no minor that wasn't offered. */
function speaksOffer(answered: IProtocolOffer): boolean {
  return answered.major === supportedProtocol.major && answered.minor <= supportedProtocol.minor;
}
