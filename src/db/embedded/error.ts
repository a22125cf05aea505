export type EmbeddedErrorCode =
  | 'embedded-unsupported'
  | 'embedded-absent'
  | 'embedded-unreachable'
  | 'embedded-version'
  | 'embedded-start-failed'
  | 'embedded-stop-failed'
  | 'embedded-in-use'
  | 'embedded-lost';

/** Why the embedded server can't be used. The message says what to do; it holds no secret. */
export class EmbeddedError extends Error {
  override readonly name = 'EmbeddedError';
  readonly code: EmbeddedErrorCode;
  /** With `embedded-in-use`: the process id of the service that holds the server, where it is known. */
  readonly holderPid: number | undefined;

  constructor(
    code: EmbeddedErrorCode,
    message: string,
    more: { holderPid?: number | undefined; cause?: unknown } = {},
  ) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.code = code;
    this.holderPid = more.holderPid;
  }
}

/** The `code` of an error of the file system, the network or Postgres. */
export function errorCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
