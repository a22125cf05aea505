/** A request that is sent during a fault, and what the tables must then say of it. */
import type pg from 'pg';
import type { RawAnswer, RawClient } from './oracle-http.js';

/** Rows of one table: so many before the request, and so many more once it is applied. */
export interface Count {
  readonly table: string;
  readonly where: string;
  /** Default 0. */
  readonly before?: number;
  /** Default 1. */
  readonly added?: number;
}

/** A request that may be sent again and again, and has one effect. */
export interface ActRequest {
  send(): Promise<RawAnswer>;
  /** Null for a report, which has no mutation id. */
  readonly mutationId: string | null;
  /** All of them are applied, or none. */
  readonly counts: readonly Count[];
  /** What else must hold once the request is done; gives what is wrong. Both answers may be looked at. */
  judge?(database: pg.Pool, first: RawAnswer, again: RawAnswer): Promise<string[]>;
}

export interface Act {
  readonly name: string;
  /** The owner method; null for reports. */
  readonly method: string | null;
  next(): Promise<ActRequest>;
}

/** A mutation of an administrator, the first one where no token is given. */
export function ownerRequest(
  client: RawClient,
  method: string,
  body: { mutationId: string } & Record<string, unknown>,
  counts: readonly Count[] = [],
  token?: string,
): ActRequest {
  return { mutationId: body.mutationId, counts, send: () => client.owner(method, body, token) };
}
