import pg from 'pg';
import { toQueryConfig, type Statement } from './statement.js';
import {
  CardinalityError,
  CommitUnknownError,
  TransactionLostError,
  endsSession,
  isOutdatedPlan,
  isRetryable,
} from './transaction-errors.js';

/** Points of a transaction at which a test may throw or kill: `name:1`, `name:2`, …, `name:commit`, `name:committed`. */
export interface FaultHook {
  at(point: string): void;
}

export type BeginStatement =
  'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE' | 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY';

type Result = pg.QueryResult<pg.QueryResultRow>;

/** What is known of COMMIT once its answer, or the end of the connection, is there. */
type CommitAnswer =
  { readonly kind: 'committed' } | { readonly kind: 'rolled-back' | 'unknown'; readonly error: unknown };

/**
 * One transaction on one pipelined client, from BEGIN to the end of the pipeline.
 *
 * 1. pg answers statements in the order in which they were sent, through callbacks that run in that order. So the first
 *    failure is recorded before any later answer is looked at; later statements fail with it, not with their own 25P02.
 * 2. After a failure was noticed nothing more is sent but ROLLBACK. A COMMIT that is already on its way is answered
 *    with the tag ROLLBACK and without an error: only the tag COMMIT is an acknowledgement.
 * 3. Every promise handed out has a handler, so an unawaited one can't end the process.
 * 4. The client goes back only when the pipeline is silent.
 */
export class OpenTransaction {
  readonly name: string;
  readonly #client: pg.PoolClient;
  readonly #begin: BeginStatement;
  readonly #faults: FaultHook | undefined;
  readonly #sent: Promise<unknown>[] = [];
  #count = 0;
  #begun = false;
  #closed = false;
  #broken = false;
  #corked = false;
  /** The first failure: as it came, and as callers see it. */
  #failure: { readonly raw: unknown; readonly error: unknown } | undefined;
  #commit: Promise<CommitAnswer> | undefined;

  constructor(client: pg.PoolClient, name: string, begin: BeginStatement, faults: FaultHook | undefined) {
    this.#client = client;
    this.name = name;
    this.#begin = begin;
    this.#faults = faults;
    client.on('error', this.#onBroken);
    client.on('end', this.#onBroken);
  }

  readonly #onBroken = (): void => {
    this.#broken = true;
  };

  rows<R>(query: Statement<R>): Promise<R[]> {
    return this.#execute(query, (result) => result.rows as R[]);
  }

  one<R>(query: Statement<R>): Promise<R> {
    return this.#execute(query, (result, label) => {
      if (result.rows.length !== 1) throw new CardinalityError(label, 'exactly one', result.rows.length);
      return result.rows[0] as R;
    });
  }

  maybe<R>(query: Statement<R>): Promise<R | undefined> {
    return this.#execute(query, (result, label) => {
      if (result.rows.length > 1) throw new CardinalityError(label, 'at most one', result.rows.length);
      return result.rows[0] as R | undefined;
    });
  }

  run(query: Statement<unknown>): Promise<number> {
    return this.#execute(query, (result) => result.rowCount ?? 0);
  }

  commitWith<R>(query: Statement<R>): Promise<R[]> {
    const rows = this.rows(query);
    return handled(this.#acknowledged(this.#sendCommit(), rows));
  }

  /** Runs the work and ends the transaction as its value or error demands. */
  async complete<T>(work: (tx: OpenTransaction) => Promise<T>, isRefusal: (value: T) => boolean): Promise<T> {
    let value: T;
    try {
      value = await work(this);
    } catch (error) {
      throw await this.#abandon(error);
    }
    if (this.#commit !== undefined) return this.#afterCommitWith(value, isRefusal(value));
    if (isRefusal(value)) return this.#refuse(value);
    // Unawaited statements are judged before COMMIT: one of them may have failed, or given too few rows.
    await Promise.allSettled(this.#sent);
    try {
      if (this.#failure !== undefined) throw this.#failure.error;
      if (this.#begun) await this.#acknowledged(this.#sendCommit(), Promise.resolve());
    } catch (error) {
      throw await this.#abandon(error);
    }
    this.#closed = true;
    return value;
  }

  /** Stops watching the client. True: it may be used again. */
  leaveClient(): boolean {
    this.#closed = true;
    this.#client.removeListener('error', this.#onBroken);
    this.#client.removeListener('end', this.#onBroken);
    if (this.#broken || isOutdatedPlan(this.#failure?.raw)) return false;
    return !this.#begun || this.#client.getTransactionStatus() === 'I';
  }

  #execute<T>(query: Statement<unknown>, read: (result: Result, label: string) => T): Promise<T> {
    return handled(this.#send(query, read));
  }

  /** Not async up to the send: the order of the calls is the order on the wire. */
  #send<T>(query: Statement<unknown>, read: (result: Result, label: string) => T): Promise<T> {
    if (this.#closed) return Promise.reject(new Error(`${this.name}: the transaction has ended`));
    if (this.#failure !== undefined) return Promise.reject(this.#failure.error);
    this.#count += 1;
    const label = `${this.name}:${this.#count}`;
    let config: pg.QueryConfig;
    try {
      this.#faults?.at(label);
      config = toQueryConfig(query);
    } catch (error) {
      return Promise.reject(this.#fail(error));
    }
    this.#sendBegin();
    return this.#dispatch(config, (result) => read(result, label));
  }

  #sendBegin(): void {
    if (this.#begun) return;
    this.#begun = true;
    void handled(this.#dispatch({ text: this.#begin }, () => undefined));
  }

  #dispatch<T>(config: pg.QueryConfig, read: (result: Result) => T): Promise<T> {
    this.#corkThisTick();
    const answer = new Promise<T>((resolve, reject) => {
      this.#client.query(config, (error: Error | null | undefined, result: Result) => {
        if (error) return reject(this.#fail(error, this.#explain(error)));
        try {
          resolve(read(result));
        } catch (failure) {
          reject(this.#fail(failure));
        }
      });
    });
    // Settles with the answer without keeping its rows: a long transaction must not hold all that it has read.
    this.#sent.push(answer.then(forget, forget));
    return answer;
  }

  /** What is sent within one turn of the event loop goes out in one write. */
  #corkThisTick(): void {
    if (this.#corked) return;
    this.#corked = true;
    const { stream } = this.#client.connection;
    stream.cork();
    process.nextTick(() => {
      this.#corked = false;
      stream.uncork();
    });
  }

  /** Records the failure if it is the first, and gives the first, as the caller sees it. */
  #fail(raw: unknown, error: unknown = raw): unknown {
    this.#failure ??= { raw, error };
    return this.#failure.error;
  }

  /** What an error of pg's means: the statement failed, or the connection is gone. */
  #explain(error: unknown): unknown {
    return endsSession(error) || (this.#broken && !(error instanceof pg.DatabaseError))
      ? new TransactionLostError(this.name, error)
      : error;
  }

  /** Sends COMMIT, unless a failure is known already. Never rejects. */
  #sendCommit(): Promise<CommitAnswer> {
    if (this.#closed)
      return Promise.resolve({ kind: 'rolled-back', error: new Error(`${this.name}: the transaction has ended`) });
    try {
      if (this.#failure === undefined) this.#faults?.at(`${this.name}:commit`);
    } catch (error) {
      this.#fail(error);
    }
    if (this.#failure !== undefined) return Promise.resolve({ kind: 'rolled-back', error: this.#failure.error });
    this.#closed = true;
    this.#commit = this.#answerToCommit();
    return this.#commit;
  }

  #answerToCommit(): Promise<CommitAnswer> {
    this.#corkThisTick();
    return new Promise((resolve) => {
      this.#client.query('COMMIT', (error: Error | null | undefined, result: Result) => {
        resolve(error ? this.#judgeFailedCommit(error) : this.#judgeCommitTag(result.command));
      });
    });
  }

  #judgeCommitTag(tag: string): CommitAnswer {
    if (tag === 'COMMIT') return { kind: 'committed' };
    const error = this.#failure?.error ?? new Error(`${this.name}: COMMIT was answered with ${tag}`);
    return { kind: 'rolled-back', error };
  }

  #judgeFailedCommit(error: Error): CommitAnswer {
    // The server said, to an earlier statement, that the transaction is over: COMMIT can have had no effect.
    if (this.#failure?.raw instanceof pg.DatabaseError) return { kind: 'rolled-back', error: this.#failure.error };
    // An error that leaves the session alive is the answer to COMMIT itself, as from a deferred constraint.
    if (error instanceof pg.DatabaseError && !endsSession(error)) {
      return { kind: 'rolled-back', error: this.#fail(error) };
    }
    this.#broken = true;
    return { kind: 'unknown', error: new CommitUnknownError(this.name, 'unknown', error) };
  }

  /** Gives the last answer once COMMIT is confirmed. */
  async #acknowledged<T>(commit: Promise<CommitAnswer>, last: Promise<T>): Promise<T> {
    const answer = await commit;
    if (answer.kind !== 'committed') throw answer.error;
    try {
      this.#faults?.at(`${this.name}:committed`);
      // Answered before COMMIT was, so this waits for nothing. What failed here failed in reading the answer.
      const value = await last;
      if (this.#failure !== undefined) throw this.#failure.error;
      return value;
    } catch (cause) {
      throw new CommitUnknownError(this.name, 'committed', cause);
    }
  }

  async #afterCommitWith<T>(value: T, refusal: boolean): Promise<T> {
    const answer = await this.#commit;
    if (answer === undefined || answer.kind === 'committed') {
      if (this.#failure !== undefined) throw new CommitUnknownError(this.name, 'committed', this.#failure.error);
      return value;
    }
    if (answer.kind === 'rolled-back' && refusal && !isFinal(answer.error)) return value;
    throw answer.error;
  }

  async #refuse<T>(value: T): Promise<T> {
    await this.#rollback();
    if (isFinal(this.#failure?.error)) throw this.#failure?.error;
    return value;
  }

  /** Ends a transaction whose work threw, and gives the error to throw. */
  async #abandon(error: unknown): Promise<unknown> {
    if (this.#commit !== undefined) {
      const answer = await this.#commit;
      if (answer.kind !== 'committed') return isFinal(answer.error) ? answer.error : error;
      return error instanceof CommitUnknownError ? error : new CommitUnknownError(this.name, 'committed', error);
    }
    await this.#rollback();
    return isFinal(this.#failure?.error) ? this.#failure?.error : error;
  }

  async #rollback(): Promise<void> {
    this.#closed = true;
    if (!this.#begun) return;
    await new Promise<void>((resolve) => {
      this.#client.query('ROLLBACK', (error: Error | null | undefined) => {
        if (error) this.#broken = true;
        resolve();
      });
    });
    await Promise.allSettled(this.#sent);
  }
}

/** Errors that no work may turn into something else: they decide about a retry, or about what the caller may assume. */
function isFinal(error: unknown): boolean {
  return isRetryable(error) || error instanceof TransactionLostError || error instanceof CommitUnknownError;
}

function forget(): void {}

/** Marks the rejection as handled; whoever awaits the promise still gets it. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
