import { TypeCompiler } from '@sinclair/typebox/compiler';
import type { FastifyReply } from 'fastify';
import { type Problem, problemCatalogue, ProblemDocument, problemDocument } from '../contract/problems.js';

const checker = TypeCompiler.Compile(ProblemDocument);

/** Seconds after which a request that could not be answered now may be sent again. */
const RETRY_AFTER_SECONDS = 1;

export interface ProblemReply {
  /** Of a 429: seconds until the next try. */
  readonly retryAfterSeconds?: number | undefined;
  /** Bytes that the answer may have; a longer one loses everything that explains the code. */
  readonly maximumBytes?: number | undefined;
}

/** Answers with `application/problem+json`. A problem with fields that the document does not have is never sent. */
export function sendProblem(reply: FastifyReply, problem: Problem, options: ProblemReply = {}): FastifyReply {
  const { status } = problemCatalogue[problem.code];
  const retryAfter = status === 429 ? options.retryAfterSeconds : status === 503 ? RETRY_AFTER_SECONDS : undefined;
  if (retryAfter !== undefined) void reply.header('retry-after', String(retryAfter));
  if (status === 401) void reply.header('www-authenticate', 'Bearer');
  return reply.code(status).type('application/problem+json').send(problemText(problem, options.maximumBytes));
}

/** The document's JSON. */
export function problemText(problem: Problem, maximumBytes = Infinity): string {
  const document = problemDocument(problem);
  if (!checker.Check(document)) return JSON.stringify(problemDocument({ code: problem.code }));
  const text = JSON.stringify(document);
  if (Buffer.byteLength(text) <= maximumBytes) return text;
  const { code, mutationOutcome, retrySafe, current } = problem;
  const brief: Problem = {
    code,
    ...(current === undefined ? {} : { current }),
    ...(mutationOutcome === undefined ? {} : { mutationOutcome }),
    ...(retrySafe === undefined ? {} : { retrySafe }),
  };
  return JSON.stringify(problemDocument(brief));
}
