import { type Readable, Transform } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { LARGE_BODY_BYTES } from './large-body-gate.js';
import { network } from './login-throttle.js';

/** 16 of the largest reports at once; smaller ones many more. */
const MAXIMUM_BYTES = 67_108_864;

/** So that nobody takes all the room from one address. */
const MAXIMUM_BYTES_OF_ADDRESS = MAXIMUM_BYTES / 2;

/** A body did not fit in beside those that are being received. */
export class NoRoomError extends Error {
  override readonly name = 'NoRoomError';
}

/**
 * Large bodies whose senders are not known yet: the credential stands inside. What has arrived of them together is bounded,
 * and so is each address's part of it; the body that would go beyond is refused at once, with {@link NoRoomError}. Counted are
 * bytes that are here, not those that a header announces: to announce costs nothing.
 */
export class UnprovenBytes {
  #total = 0;
  readonly #ofAddress = new Map<string, number>();
  readonly #release = new WeakMap<FastifyRequest, () => void>();

  /** The body's stream, counted if it may become large. Its bytes count until `release`, or the answer's end. */
  receive(request: FastifyRequest, reply: FastifyReply, payload: Readable): Readable {
    const length = Number(request.headers['content-length'] ?? Infinity);
    const { bodyLimit } = request.routeOptions;
    // What is announced beyond the limit is refused before any of it is read.
    if (length <= LARGE_BODY_BYTES || (length !== Infinity && length > bodyLimit)) return payload;
    return this.#counted(request, reply, payload);
  }

  /** Its sender is known now, or refused. */
  release(request: FastifyRequest): void {
    this.#release.get(request)?.();
  }

  #counted(request: FastifyRequest, reply: FastifyReply, payload: Readable): Readable {
    const address = network(request.ip);
    let held = 0;
    let counting = true;
    const counted = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        if (counting && !this.#take(address, chunk.length)) return done(new NoRoomError('no room for the body'));
        if (counting) held += chunk.length;
        done(null, chunk);
      },
    });
    const release = (): void => {
      if (!counting) return;
      counting = false;
      this.#give(address, held);
    };
    this.#release.set(request, release);
    const passOver = (): void => {
      release();
      // What still comes is read and dropped: else the connection would stand still, or break before its answer is read.
      payload.unpipe(counted);
      payload.resume();
    };
    reply.raw.once('close', passOver);
    counted.once('error', passOver);
    // A pipe does not hand this on.
    payload.once('error', (error) => counted.destroy(error));
    return payload.pipe(counted);
  }

  #take(address: string, bytes: number): boolean {
    const held = (this.#ofAddress.get(address) ?? 0) + bytes;
    if (this.#total + bytes > MAXIMUM_BYTES || held > MAXIMUM_BYTES_OF_ADDRESS) return false;
    this.#total += bytes;
    this.#ofAddress.set(address, held);
    return true;
  }

  #give(address: string, bytes: number): void {
    this.#total -= bytes;
    const left = (this.#ofAddress.get(address) ?? 0) - bytes;
    if (left > 0) this.#ofAddress.set(address, left);
    else this.#ofAddress.delete(address);
  }
}
