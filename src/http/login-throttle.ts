import { isIP } from 'node:net';
import { LRUCache } from 'lru-cache';
import type { Clock } from '../clock.js';

/** Failures at once, and the milliseconds after which one more is free. */
interface Allowance {
  readonly burst: number;
  readonly refillMs: number;
}

const PER_ADDRESS: Allowance = { burst: 20, refillMs: 3_000 };
const PER_ID: Allowance = { burst: 10, refillMs: 6_000 };

/** Addresses and ids that are remembered; the least recently failed are forgotten first. */
const MAXIMUM_KEYS = 10_000;

interface Bucket {
  free: number;
  /** Unix ms of the last refill. */
  at: number;
}

/**
 * Slows down who presents refused credentials, per address and per node or credential id.
 *
 * A token's validity can only be known by asking the database, and a valid one must never be refused because others
 * failed beside it. So every token is verified, and the throttle only decides what a *failing* one is answered: 401, or
 * 429 with the seconds to wait. What failures cost is bounded elsewhere: they share the queries of those who succeed,
 * one look-up by key each, and their bodies are not parsed.
 */
export class LoginThrottle {
  readonly #clock: Clock;
  readonly #buckets = new LRUCache<string, Bucket>({ max: MAXIMUM_KEYS });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Notes a failure. Gives the whole seconds to wait where there were too many, else undefined. */
  fail(address: string, id: string | undefined): number | undefined {
    const waits = [this.#take(`address ${network(address)}`, PER_ADDRESS)];
    if (id !== undefined) waits.push(this.#take(`id ${id}`, PER_ID));
    const longest = Math.max(...waits);
    return longest === 0 ? undefined : Math.ceil(longest / 1000);
  }

  /** Takes one failure from the allowance; gives the milliseconds until there is one, 0 where there was. */
  #take(key: string, allowance: Allowance): number {
    const now = this.#clock.now().getTime();
    const bucket = this.#buckets.get(key) ?? { free: allowance.burst, at: now };
    // A clock that was set back refills nothing.
    const refilled = Math.max(0, Math.floor((now - bucket.at) / allowance.refillMs));
    const free = Math.min(allowance.burst, bucket.free + refilled);
    const at = free === allowance.burst ? now : bucket.at + refilled * allowance.refillMs;
    this.#buckets.set(key, { free: Math.max(0, free - 1), at });
    return free > 0 ? 0 : Math.max(1, at + allowance.refillMs - now);
  }
}

/** Whoever has one IPv6 address has its whole /64. What a proxy passes on that is no address is nobody's own. */
export function network(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  if (isIP(address) === 4) return address;
  if (isIP(address) === 0) return 'unknown';
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const groups = head === '' ? [] : head.split(':');
  const last = tail === undefined || tail === '' ? [] : tail.split(':');
  const middle = tail === undefined ? 0 : Math.max(0, 8 - groups.length - last.length);
  return [...groups, ...Array<string>(middle).fill('0'), ...last].slice(0, 4).join(':');
}
