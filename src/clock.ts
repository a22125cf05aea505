/** Where the time comes from. It is passed in, so that decisions can be tested at any moment. */
export interface Clock {
  /** The wall clock, to record for people. No authority depends on it. */
  now(): Date;
}

export const systemClock: Clock = { now: () => new Date() };
