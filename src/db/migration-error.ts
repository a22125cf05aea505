export type MigrationErrorCode =
  | 'migration-name'
  | 'migration-gap'
  | 'migration-edited'
  | 'migration-locked'
  | 'migration-failed'
  | 'database-newer'
  | 'grants-missing';

/** Why the database can't be brought to this program's schema. Nothing was changed by the attempt, but for roles. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError';
  readonly code: MigrationErrorCode;

  constructor(code: MigrationErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}
