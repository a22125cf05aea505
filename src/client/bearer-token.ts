/**
 * A credential as the client takes it: an object that gives its value only when asked, so that spreading, printing or
 * serialising whatever holds it shows nothing. The program's `Secret` is one.
 */
export interface BearerToken {
  /** The value itself, as it goes onto the wire. */
  reveal(): string;
}
