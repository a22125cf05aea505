/** An audit head that somebody has written down: `SEQ:DIGEST`, or `CHAIN:SEQ:DIGEST`. */

export interface RememberedHead {
  /** Null: the chain of the cluster that is verified. */
  readonly chainId: string | null;
  readonly seq: number;
  readonly digest: string;
}

/** Undefined for anything else. */
export function parseRememberedHead(text: string): RememberedHead | undefined {
  const match = /^(?:([A-Za-z0-9][A-Za-z0-9._:-]*):)?(\d{1,15}):(sha256:[0-9a-f]{64})$/.exec(text);
  return match === null ? undefined : { chainId: match[1] ?? null, seq: Number(match[2]), digest: match[3]! };
}
