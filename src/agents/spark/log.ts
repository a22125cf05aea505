/** One thing that a Spark did or met, for people and for machines; never a token, a body or a snapshot. */
export interface SparkEvent {
  readonly level: 'info' | 'warn' | 'error';
  readonly event: string;
  readonly [detail: string]: string | number | boolean | null;
}

export type SparkLog = (event: SparkEvent) => void;
