/** What `npm run faults` may be told. */
import { parseArgs } from 'node:util';

export const plants = ['lost', 'doubled', 'serverError'] as const;
export type TPlant = (typeof plants)[number];

export interface FaultsOptions {
  /** The service is broken on purpose, and the run has to report it. */
  readonly plant: TPlant | undefined;
  readonly seed: number;
  readonly kills: number;
  readonly attempts: number;
  readonly publishes: number;
  readonly fuzzInputs: number;
  /** Whether processes are killed at every point of some acts, beside connections that are cut at all points of all. */
  readonly killAtPoints: boolean;
}

const full = { kills: 200, attempts: 10_000, publishes: 1_000, fuzzInputs: 30_000, killAtPoints: true };
const small = { kills: 12, attempts: 400, publishes: 40, fuzzInputs: 1_500, killAtPoints: false };
/** What is planted is found within moments. */
const planted = { ...small, kills: 5 };

/** `--scale small` tries the program out. Throws for what is no option. */
export function readOptions(args: readonly string[]): FaultsOptions {
  const { values } = parseArgs({
    args: [...args],
    options: { plant: { type: 'string' }, seed: { type: 'string' }, scale: { type: 'string' } },
  });
  const { plant, scale } = values;
  if (plant !== undefined && !plants.includes(plant as TPlant))
    throw new Error(`--plant is one of ${plants.join(', ')}`);
  if (scale !== undefined && scale !== 'small' && scale !== 'full') throw new Error('--scale is small or full');
  const seed = values.seed === undefined ? Date.now() % 2 ** 31 : Number(values.seed);
  if (!Number.isInteger(seed)) throw new Error('--seed is an integer');
  const size = plant !== undefined && scale === undefined ? planted : scale === 'small' ? small : full;
  return { plant: plant as TPlant | undefined, seed, ...size };
}
