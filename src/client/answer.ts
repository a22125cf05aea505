/** From the bytes of an answer to its checked value, or to the error that it is. */
import { ProblemDocument } from '../contract/problems.js';
import { type ContractRecord, defineRecord } from '../contract/record.js';
import { type JsonValue, parseStrictJson, StrictJsonError } from '../contract/strict-json.js';
import { ContractViolationError, ProblemError, TransportError } from './errors.js';
import type { ReceivedAnswer } from './transport.js';

const problemDocumentRecord = defineRecord('IProblemDocument', ProblemDocument);

/**
 * The value of a 200 answer, checked against the schema (and rules) of `record`.
 *
 * @throws ProblemError for a problem document
 * @throws TransportError `gateway` for a 5xx that is no problem document: not the service itself said it
 * @throws ContractViolationError for every other answer
 */
export function readAnswer<T>(answer: ReceivedAnswer, record: ContractRecord<T>): T {
  if (answer.status !== 200) throw problemOf(answer);
  if (answer.mediaType !== 'application/json') throw new ContractViolationError(['the answer is not application/json']);
  const value = strictJson(answer.body);
  const errors = record.check(value);
  if (errors.length > 0) throw new ContractViolationError(errors);
  return value as T;
}

function problemOf(answer: ReceivedAnswer): Error {
  if (answer.mediaType !== 'application/problem+json') {
    if (answer.status >= 500) {
      return new TransportError('gateway', { outcome: 'unknown', systemCode: String(answer.status) });
    }
    return new ContractViolationError([`status ${answer.status} came without a problem document`]);
  }
  const document = strictJson(answer.body);
  const errors = problemDocumentRecord.check(document);
  if (!problemDocumentRecord.is(document)) return new ContractViolationError(errors);
  if (document.status !== answer.status) {
    return new ContractViolationError([`a problem document of status ${document.status} came with ${answer.status}`]);
  }
  return new ProblemError(document, answer.retryAfterSeconds);
}

function strictJson(body: Uint8Array): JsonValue {
  try {
    return parseStrictJson(body);
  } catch (error) {
    if (error instanceof StrictJsonError) throw new ContractViolationError([error.message]);
    throw error;
  }
}
