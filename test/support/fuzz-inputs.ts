/** Hostile requests, repeatable from a seed: structured ones that are almost right, and raw bytes. */
import { Kind, OptionalKind, type TSchema } from '@sinclair/typebox';
import { methodPath, type OwnerMethod } from '../../src/contract/method.js';
import { methodNames, methods } from '../../src/contract/methods.js';
import { SparkSwarmObservationRequest } from '../../src/contract/observation.js';
import { SparkGetFleetCutoverPreparedVolumeHandoffsRequest } from '../../src/contract/handoff.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';

/** A small generator of our own, so that a printed seed repeats a run in any version of any library. */
export interface Dice {
  /** An integer of 0..below-1. */
  below(below: number): number;
  chance(of: number): boolean;
  pick<T>(from: readonly T[]): T;
}

/** mulberry32 */
export function dice(seed: number): Dice {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
  const below = (bound: number): number => Math.floor(next() * bound);
  return { below, chance: (of) => next() < of, pick: (from) => from[below(from.length)]! };
}

export interface FuzzInput {
  readonly path: string;
  readonly verb: string;
  readonly headers: Record<string, string>;
  readonly body: string | Buffer | undefined;
  /** How it was made, for the report of a failure. */
  readonly how: string;
}

/** What exists, so that inputs get past the first look-up. */
export interface FuzzWorld {
  readonly token: string;
  readonly identifiers: readonly string[];
  readonly digests: readonly string[];
  readonly references: readonly object[];
  readonly cursors: readonly string[];
  readonly nodes: readonly { readonly nodeId: string; readonly token: string }[];
  /** Bodies that the service accepts, by path; they are bent. */
  readonly accepted: readonly { readonly path: string; readonly body: unknown }[];
}

interface Target {
  readonly path: string;
  readonly schema: TSchema;
}

/** Every endpoint that takes a body. */
export const fuzzTargets: readonly Target[] = [
  ...methodNames.map((name) => ({
    path: methodPath(methods[name] as OwnerMethod),
    schema: methods[name].request as TSchema,
  })),
  { path: sparkSwarmNodeContracts.swarmObservation.endpoint, schema: SparkSwarmObservationRequest },
  {
    path: sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint,
    schema: SparkGetFleetCutoverPreparedVolumeHandoffsRequest,
  },
];

export function fuzzInput(roll: Dice, world: FuzzWorld): FuzzInput {
  const target = roll.pick(fuzzTargets);
  const bearer = { authorization: `Bearer ${world.token}` };
  switch (roll.below(8)) {
    case 0:
      return { path: target.path, verb: 'POST', headers: bearer, body: bytes(roll), how: 'raw bytes' };
    case 1:
      return {
        path: target.path,
        verb: 'POST',
        headers: bearer,
        body: brokenText(roll, generate(roll, world, target.schema, 0)),
        how: 'broken text',
      };
    case 2:
      return {
        path: oddPath(roll, target.path),
        verb: roll.pick(['GET', 'POST', 'PUT', 'DELETE']),
        headers: { ...bearer, ...oddHeaders(roll) },
        body: undefined,
        how: 'odd route',
      };
    case 3:
    case 4: {
      const { path, body } = roll.pick(world.accepted);
      return { path, verb: 'POST', headers: bearer, body: JSON.stringify(bend(roll, world, body)), how: 'bent' };
    }
    default: {
      const value = generate(roll, world, target.schema, 0);
      return {
        path: target.path,
        verb: 'POST',
        headers: roll.chance(0.05) ? oddHeaders(roll) : bearer,
        body: JSON.stringify(value),
        how: 'by schema',
      };
    }
  }
}

// Values by schema --------------------------------------------------------------------------------------------------

const texts = [
  '',
  ' ',
  '\0',
  '\u{10ffff}',
  '\ud800',
  '"',
  '\\',
  '../..',
  "'; drop table x; --",
  '__proto__',
  'constructor',
  'NaN',
  '\u202e',
  '%00',
  '$1',
  '{}',
];
const numbers = [0, -1, 1, 2 ** 31, 2 ** 53 - 1, -(2 ** 53 - 1), 2 ** 53, 1e308, 0.5, -0, 4096, 131_072];

function generate(roll: Dice, world: FuzzWorld, schema: TSchema, depth: number): unknown {
  if (roll.chance(0.02)) return anything(roll, world, depth);
  switch (schema[Kind]) {
    case 'Object':
      return object(roll, world, schema, depth);
    case 'Array':
    case 'Tuple': {
      const most = schema[Kind] === 'Tuple' ? 0 : depth > 4 ? 1 : 4;
      return Array.from({ length: roll.below(most + 1) }, () =>
        generate(roll, world, schema.items as TSchema, depth + 1),
      );
    }
    case 'Union':
      return generate(roll, world, roll.pick(schema.anyOf as TSchema[]), depth);
    case 'Literal':
      return schema.const;
    case 'Null':
      return null;
    case 'Boolean':
      return roll.chance(0.5);
    case 'Integer':
    case 'Number':
      return integer(roll, schema);
    case 'String':
      return text(roll, world, schema);
    default:
      return Array.isArray(schema.anyOf)
        ? generate(roll, world, roll.pick(schema.anyOf as TSchema[]), depth)
        : text(roll, world, schema);
  }
}

function object(roll: Dice, world: FuzzWorld, schema: TSchema, depth: number): unknown {
  const properties = schema.properties as Record<string, TSchema>;
  const keys = Object.keys(properties);
  if (keys.join() === 'id,generation,digest' && roll.chance(0.8)) return roll.pick(world.references);
  const made: Record<string, unknown> = {};
  for (const key of keys) {
    const property = properties[key]!;
    if (OptionalKind in property && roll.chance(0.5)) continue;
    if (roll.chance(0.01)) continue;
    made[key] = memberOf(roll, world, key) ?? generate(roll, world, property, depth + 1);
  }
  if ('nodeToken' in made && 'nodeId' in made && roll.chance(0.9)) {
    const node = roll.pick(world.nodes);
    Object.assign(made, { nodeId: node.nodeId, nodeToken: node.token, protocol: { major: 32, minor: roll.below(20) } });
  }
  // Nothing that the fuzzer itself needs is to be taken away, but for what a schema names.
  if (roll.chance(0.01)) made[roll.pick(texts)] = 1;
  return made;
}

/** Most members that name something name what exists, or the first look-up is all that is ever tried. */
function memberOf(roll: Dice, world: FuzzWorld, key: string): string | undefined {
  if (key === 'nodeToken') return roll.pick(world.nodes).token;
  if (roll.chance(0.1)) return undefined;
  if (key === 'clusterId') return world.identifiers[0];
  if (key === 'nodeId') return roll.pick(world.nodes).nodeId;
  return key === 'mutationId' ? `fuzz-${roll.below(1e9)}` : undefined;
}

function integer(roll: Dice, schema: TSchema): number {
  const { minimum = 0, maximum = 100 } = schema as { minimum?: number; maximum?: number };
  if (roll.chance(0.1)) return roll.pick(numbers);
  if (roll.chance(0.1)) return roll.pick([minimum, maximum, minimum - 1, maximum + 1]);
  return minimum + roll.below(Math.min(maximum - minimum + 1, 8));
}

function text(roll: Dice, world: FuzzWorld, schema: TSchema): string {
  const { pattern = '', maxLength = 64 } = schema as { pattern?: string; maxLength?: number };
  if (roll.chance(0.05)) return roll.pick(texts);
  if (roll.chance(0.02)) return 'x'.repeat(Math.min(maxLength + roll.below(2), 5_000));
  if (pattern.includes('sha256')) return roll.pick(world.digests);
  if (pattern.startsWith('^(/')) return `/${'p/'.repeat(roll.below(4))}${roll.below(9)}`;
  if (pattern === '^[0-9a-f]{64}$') return 'ab'.repeat(32);
  if (maxLength === 512 && world.cursors.length > 0 && roll.chance(0.7)) return bentCursor(roll, world);
  return roll.chance(0.7) ? roll.pick(world.identifiers) : `fuzz-${roll.below(1_000_000)}`;
}

/** Cursors are opaque to clients, which never kept anybody from writing his own. */
function bentCursor(roll: Dice, world: FuzzWorld): string {
  if (roll.chance(0.3)) return roll.pick(world.cursors);
  const parts = [
    roll.pick(numbers),
    roll.pick(numbers),
    roll.pick([...texts, ...world.identifiers]),
    roll.pick([...texts, ...world.identifiers]),
  ];
  return Buffer.from(JSON.stringify(roll.chance(0.8) ? parts : parts.slice(1)))
    .toString('base64url')
    .slice(0, 512);
}

function anything(roll: Dice, world: FuzzWorld, depth: number): unknown {
  const simple = [null, true, false, roll.pick(numbers), roll.pick(texts), [], {}, roll.pick(world.references)];
  if (depth > 3 || roll.chance(0.7)) return roll.pick(simple);
  return roll.chance(0.5)
    ? [anything(roll, world, depth + 1)]
    : { [roll.pick(texts)]: anything(roll, world, depth + 1) };
}

// Bent ones ---------------------------------------------------------------------------------------------------------

/** Changes one thing somewhere in a copy; a mutation gets a fresh id most of the time. */
function bend(roll: Dice, world: FuzzWorld, body: unknown): unknown {
  const copy = structuredClone(body) as Record<string, unknown>;
  if ('mutationId' in copy && roll.chance(0.8)) copy['mutationId'] = `fuzz-${roll.below(1e9)}`;
  let place: unknown = copy;
  for (let depth = 0; depth < 8; depth += 1) {
    const holder = place as Record<string, unknown>;
    const keys = Object.keys(holder).filter((key) => key !== 'nodeToken' && key !== 'nodeId');
    if (keys.length === 0) break;
    const key = roll.pick(keys);
    const value = holder[key];
    if (typeof value === 'object' && value !== null && roll.chance(0.8)) {
      place = value;
      continue;
    }
    const change = roll.below(4);
    if (change === 0) delete holder[key];
    else if (change === 1)
      holder[key] = typeof value === 'number' ? roll.pick(numbers) : roll.pick([...texts, ...world.identifiers]);
    else if (change === 2) holder[key] = anything(roll, world, 0);
    else if (Array.isArray(holder)) holder.push(structuredClone(value));
    else holder[`${key}x`] = value;
    break;
  }
  return copy;
}

// Bytes and routes --------------------------------------------------------------------------------------------------

function bytes(roll: Dice): Buffer {
  return Buffer.from(
    Array.from({ length: roll.below(200) }, () =>
      roll.chance(0.5) ? roll.below(256) : roll.pick([...Buffer.from('{}[]",:\\u0019e-. ')]),
    ),
  );
}

function brokenText(roll: Dice, value: unknown): Buffer {
  const whole = Buffer.from(JSON.stringify(value) ?? '');
  const at = roll.below(whole.length + 1);
  switch (roll.below(4)) {
    case 0:
      return whole.subarray(0, at);
    case 1:
      return Buffer.concat([whole.subarray(0, at), bytes(roll).subarray(0, 3), whole.subarray(at)]);
    case 2:
      return Buffer.concat([whole, whole]);
    default:
      return Buffer.concat([Buffer.from('['.repeat(roll.below(2_000))), whole]);
  }
}

function oddPath(roll: Dice, path: string): string {
  return roll.pick([
    `${path}/`,
    `${path}?x=1`,
    path.toUpperCase(),
    `/${path}`,
    `${path}%00`,
    `${path}/..`,
    '/%zz',
    '/',
    '/health',
    '/readiness',
    `/${'a'.repeat(5_000)}`,
  ]);
}

function oddHeaders(roll: Dice): Record<string, string> {
  return roll.pick<Record<string, string>>([
    { authorization: 'Bearer' },
    { authorization: `Bearer fc.${'x'.repeat(600)}.${'A'.repeat(43)}` },
    { authorization: 'Basic YTpi' },
    { 'content-type': 'application/json; charset=utf-16' },
    { 'content-type': 'text/plain' },
    { 'content-encoding': 'gzip' },
    {},
  ]);
}
