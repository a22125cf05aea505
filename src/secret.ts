const REDACTED = '[secret]';

/**
 * A value that must not be printed. JSON, `util.inspect`, string conversion and template literals show `[secret]`;
 * only {@link Secret.reveal} gives the value. The value is a private field, so spreading or walking the object shows nothing.
 */
export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** The value itself. Every call is a place to look at in a review. */
  reveal(): string {
    return this.#value;
  }

  toJSON(): string {
    return REDACTED;
  }

  toString(): string {
    return REDACTED;
  }

  [Symbol.toPrimitive](): string {
    return REDACTED;
  }

  /** Hook of `util.inspect`, found by its registered symbol so that this file needs no Node import. */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return REDACTED;
  }
}
