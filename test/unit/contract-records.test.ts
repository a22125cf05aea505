import { readdirSync, readFileSync } from 'node:fs';
import { Kind, type TSchema } from '@sinclair/typebox';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { digestDomain, recordDigest } from '../../src/contract/digest.js';
import {
  fleetCutoverPreparedVolumeHandoffAggregateRecord,
  fleetCutoverPreparedVolumeHandoffIntentRecord,
  fleetCutoverPreparedVolumeHandoffPageRecord,
  handoffSetDigest,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
  type IFleetCutoverPreparedVolumeHandoffIntent,
  type IFleetCutoverPreparedVolumeHandoffPage,
  pageContentDigest,
  sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord,
} from '../../src/contract/handoff.js';
import { ContractError, type ContractRecord } from '../../src/contract/record.js';
import { type JsonObject, type JsonValue, parseStrictJson } from '../../src/contract/strict-json.js';
import { independentBareDigest, independentRecordDigest } from '../support/independent-digest.js';

interface RecordVector {
  readonly type: string;
  readonly name: string;
  readonly domain: string;
  readonly record: JsonObject & { digest: string };
  readonly digest: string;
}

interface Vectors {
  readonly records: readonly RecordVector[];
  readonly pages: readonly {
    readonly name: string;
    readonly page: IFleetCutoverPreparedVolumeHandoffPage;
    readonly setDigest: string;
  }[];
}

/** Their digests were computed once by another implementation, in another language. */
const vectors = parseStrictJson(
  readFileSync(new URL('../vectors/records.json', import.meta.url)),
) as unknown as Vectors;

const directory = new URL('../../src/contract/', import.meta.url);
const modules = await Promise.all(
  readdirSync(directory)
    .filter((file) => file.endsWith('.ts'))
    .map(async (file) => ({ file, exports: (await import(new URL(file, directory).href)) as Record<string, unknown> })),
);

function isRecord(value: unknown): value is ContractRecord<unknown> {
  return typeof value === 'object' && value !== null && 'sealed' in value && 'snapshot' in value;
}

const records = new Map(
  modules
    .flatMap(({ exports }) => Object.values(exports))
    .filter(isRecord)
    .map((each) => [each.name, each]),
);
const recordOf = (type: string) => records.get(type)!;
const first = (type: string) => vectors.records.find((each) => each.type === type)!.record;

function reseal<T extends object>(type: string, content: T): T & { digest: string } {
  return { ...content, digest: recordDigest(digestDomain(type), content) };
}

type Path = readonly (string | number)[];

/** Every object of a value, with the path to it. */
function objects(value: JsonValue, path: Path = []): { path: Path; object: JsonObject }[] {
  if (typeof value !== 'object' || value === null) return [];
  const inner = Object.entries(value).flatMap(([key, member]) =>
    objects(member, [...path, Array.isArray(value) ? Number(key) : key]),
  );
  return Array.isArray(value) ? inner : [{ path, object: value as JsonObject }, ...inner];
}

function edited<T>(value: T, path: Path, edit: (object: Record<string, unknown>) => void): T {
  const copy = structuredClone(value);
  edit(path.reduce<unknown>((at, key) => (at as Record<string, unknown>)[key], copy) as Record<string, unknown>);
  return copy;
}

describe('golden vectors', () => {
  it('there is one for every sealed type of the contract', () => {
    const sealed = [...records.values()].filter((each) => each.sealed).map((each) => each.name);
    expect(new Set(vectors.records.map((each) => each.type))).toEqual(new Set(sealed));
  });

  it.each(vectors.records)('$type: $name', ({ type, domain, record, digest }) => {
    expect(digestDomain(type)).toBe(domain);
    expect(recordDigest(domain, record)).toBe(digest);
    expect(independentRecordDigest(domain.slice('serve.zone/'.length), record)).toBe(digest);
    expect(record.digest).toBe(digest);
    expect(recordOf(type).validate(record)).toEqual([]);
    const reversed = Object.fromEntries(Object.entries(record).reverse());
    expect(recordOf(type).validate(reversed)).toEqual([]);
  });

  it.each(vectors.pages)('$name', ({ page, setDigest }) => {
    const { aggregate: _aggregate, contentDigest, ...content } = page;
    expect(fleetCutoverPreparedVolumeHandoffPageRecord.validate(page)).toEqual([]);
    expect(pageContentDigest(page.pageIndex, page.handoffs)).toBe(contentDigest);
    expect(independentBareDigest(content)).toBe(contentDigest);
    expect(handoffSetDigest([contentDigest])).toBe(setDigest);
  });
});

describe.each(vectors.records)('$type: $name', ({ type, record }) => {
  it('is given as a detached, deeply frozen copy', () => {
    const copy = recordOf(type).snapshot(record) as JsonObject;
    expect(copy).toEqual(record);
    const originals = new Set<object>(objects(record).map((each) => each.object));
    for (const { object } of objects(copy)) {
      expect(Object.isFrozen(object)).toBe(true);
      expect(originals.has(object)).toBe(false);
    }
  });

  it('is closed at every level: an unknown, a missing or a misplaced key is an error', () => {
    for (const { path, object } of objects(record)) {
      const wrong = [edited(record, path, (at) => (at['surprise'] = null))];
      for (const key of Object.keys(object)) {
        wrong.push(edited(record, path, (at) => delete at[key]));
        wrong.push(
          edited(record, path, (at) => {
            at[`${key}X`] = at[key];
            delete at[key];
          }),
        );
      }
      for (const each of wrong) {
        // Also where its digest would be right for it.
        expect(recordOf(type).validate(each)).not.toEqual([]);
        if ('digest' in each) expect(recordOf(type).validate(reseal(type, each))).not.toEqual([]);
      }
    }
  });

  it('is refused with any other value under its digest', () => {
    for (const { path, object } of objects(record)) {
      for (const [key, value] of Object.entries(object)) {
        if (typeof value === 'object') continue;
        const other = typeof value === 'number' ? value + 1 : typeof value === 'boolean' ? !value : `${String(value)}x`;
        expect(recordOf(type).validate(edited(record, path, (at) => (at[key] = other)))).not.toEqual([]);
      }
    }
  });

  it('is not what another type’s digest says', () => {
    const { digest: _digest, ...content } = record;
    expect(recordOf(type).validate({ ...content, digest: recordDigest('serve.zone/another', content) })).not.toEqual(
      [],
    );
    expect(recordOf(type).validate({ ...content, digest: independentBareDigest(content) })).not.toEqual([]);
  });
});

describe('hostile values', () => {
  let ran = 0;
  beforeEach(() => void (ran = 0));
  afterEach(() => expect(ran).toBe(0));

  const withGetter = (target: JsonObject, key: string): object => {
    const copy = { ...target };
    Object.defineProperty(copy, key, {
      enumerable: true,
      get: () => {
        ran += 1;
        return target[key];
      },
    });
    return copy;
  };
  const withTraps = (target: object): object =>
    new Proxy(
      target,
      Object.fromEntries(
        Object.getOwnPropertyNames(Reflect).map((name) => [
          name,
          (...args: unknown[]) => {
            ran += 1;
            return (Reflect as unknown as Record<string, (...args: unknown[]) => unknown>)[name]?.(...args);
          },
        ]),
      ),
    );
  const replaced = (record: JsonObject, path: Path, make: (object: JsonObject) => unknown): unknown => {
    if (path.length === 0) return make(record);
    const copy = structuredClone(record);
    const last = path.at(-1)!;
    const holder = path.slice(0, -1).reduce<unknown>((at, key) => (at as Record<string, unknown>)[key], copy) as Record<
      string,
      unknown
    >;
    holder[last] = make(holder[last] as JsonObject);
    return copy;
  };

  it.each(vectors.records)('$type: $name: their code never runs', ({ type, record }) => {
    const contract = recordOf(type);
    for (const { path, object } of objects(record)) {
      const key = Object.keys(object)[0]!;
      const hostile = [
        replaced(record, path, (at) => withGetter(at, key)),
        replaced(record, path, withTraps),
        replaced(record, path, (at) => Object.assign(Object.create({ inherited: 1 }) as object, at)),
        replaced(record, path, (at) => ({ ...at, [Symbol('s')]: 1 })),
        replaced(record, path, (at) => ({ ...at, toJSON: () => (ran += 1) })),
        replaced(record, path, (at) => new Map(Object.entries(at))),
      ];
      for (const value of hostile) {
        expect(contract.validate(value)).not.toEqual([]);
        expect(() => contract.snapshot(value)).toThrow(ContractError);
      }
    }
  });

  it.each([...records.keys()])('%s refuses whatever is no record', (name) => {
    const cyclic: Record<string, unknown> = {};
    cyclic['self'] = cyclic;
    for (const value of [
      undefined,
      null,
      0,
      '',
      'x',
      true,
      [],
      {},
      cyclic,
      () => 1,
      Symbol('s'),
      1n,
      NaN,
      new Date(0),
      withTraps({}),
      withTraps([]),
    ]) {
      expect(recordOf(name).validate(value)).not.toEqual([]);
      expect(() => recordOf(name).snapshot(value)).toThrow(ContractError);
    }
  });
});

describe('every schema of the contract', () => {
  /** Object schemas anywhere in the schema that accept other keys than theirs. */
  function openObjects(schema: unknown, path: string): string[] {
    if (typeof schema !== 'object' || schema === null) return [];
    const { type, additionalProperties, properties, patternProperties } = schema as Record<string, unknown>;
    const open = type === 'object' && (additionalProperties !== false || patternProperties !== undefined) ? [path] : [];
    const inner = Object.entries((properties as object | undefined) ?? {}).map(([key, each]) => [key, each] as const);
    const { items, anyOf, allOf } = schema as Record<string, unknown>;
    for (const [key, each] of Object.entries({ items, anyOf, allOf })) {
      for (const one of Array.isArray(each) ? (each as unknown[]) : [each]) inner.push([key, one]);
    }
    return [...open, ...inner.flatMap(([key, each]) => openObjects(each, `${path}.${key}`))];
  }

  const schemas = modules.flatMap(({ file, exports }) =>
    Object.entries(exports)
      .filter((each): each is [string, TSchema] => typeof each[1] === 'object' && each[1] !== null && Kind in each[1])
      .map(([name, schema]) => ({ name: `${file} ${name}`, schema })),
  );

  it('is closed at every level', () => {
    /** What an envelope carries is checked against its method's own schema; an identity of serve.zone says more than we read. */
    const carried = [
      'typed-request.ts TypedRequestIdentity',
      'typed-request.ts TypedRequestEnvelope.request',
      'typed-request.ts TypedRequestEnvelope.request.identity',
      'typed-request.ts TypedRequestAnswer.anyOf.response',
    ];
    expect(schemas.length).toBeGreaterThan(50);
    const own = schemas.filter(({ name }) => !name.startsWith('contract.ts ')); // which exports the others' again
    expect(own.flatMap(({ name, schema }) => openObjects(schema, name))).toEqual(carried);
  });
});

describe('rules beyond the schema', () => {
  const aggregateType = 'IFleetCutoverPreparedVolumeHandoffAggregate';
  const aggregates = vectors.records
    .filter((each) => each.type === aggregateType)
    .map((each) => each.record as unknown as IFleetCutoverPreparedVolumeHandoffAggregate);
  const [incomplete, complete, empty] = aggregates;

  it.each<[string, IFleetCutoverPreparedVolumeHandoffAggregate, Partial<IFleetCutoverPreparedVolumeHandoffAggregate>]>([
    ['pages while incomplete', incomplete!, { pageCount: 1 }],
    ['a set digest while incomplete', incomplete!, { setDigest: complete!.setDigest }],
    ['complete with other counts', complete!, { requiredCount: 2 }],
    ['too few pages', complete!, { requiredCount: 33, actualCount: 33 }],
    ['too many pages', complete!, { pageCount: 2 }],
    ['complete without a set digest', complete!, { setDigest: null }],
    ['complete and empty with another set digest', empty!, { setDigest: complete!.setDigest }],
    ['a first generation with a predecessor', incomplete!, { predecessor: complete!.predecessor }],
    ['a later generation without one', complete!, { predecessor: null }],
    ['a predecessor that is not the generation before', empty!, { predecessor: complete!.predecessor }],
    ['a predecessor of another id', complete!, { predecessor: { ...complete!.predecessor!, id: 'ha-2' } }],
    ['more than 131,072', complete!, { requiredCount: 131_073, actualCount: 131_073, pageCount: 4097 }],
  ])('an aggregate is refused: %s', (_name, base, more) => {
    const { digest: _digest, ...content } = { ...base, ...more };
    expect(fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(reseal(aggregateType, content))).not.toEqual([]);
  });

  it('an aggregate of 131,072 on 4,096 pages is valid', () => {
    const { digest: _digest, ...content } = {
      ...complete!,
      requiredCount: 131_072,
      actualCount: 131_072,
      pageCount: 4096,
    };
    expect(fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(reseal(aggregateType, content))).toEqual([]);
  });

  const handoffType = 'IFleetCutoverPreparedVolumeHandoffIntent';
  const handoff = first(handoffType) as unknown as IFleetCutoverPreparedVolumeHandoffIntent;
  const claimOf = (more: object) => {
    const { digest: _digest, ...content } = { ...handoff.claimIntent, ...more };
    return reseal('IRuntimeStorageClaimIntent', content);
  };

  it.each<[string, object]>([
    [
      'a mount identity that joins nothing',
      { observedMount: { ...handoff.observedMount, mountIdentityDigest: handoff.digest } },
    ],
    ['another cluster’s claim', { claimIntent: claimOf({ clusterId: 'paris' }) }],
    ['another node’s claim', { claimIntent: claimOf({ nodeId: 'node-2' }) }],
    [
      'another service’s claim',
      { claimIntent: claimOf({ serviceId: 'sv-2', binding: { ...handoff.claimIntent.binding, serviceId: 'sv-2' } }) },
    ],
    ['a claim with a wrong digest', { claimIntent: { ...handoff.claimIntent, digest: handoff.digest } }],
    ['a source lineage digest', { sourceLineageDigest: handoff.digest }],
  ])('a handoff is refused: %s', (_name, more) => {
    const { digest: _digest, ...content } = { ...handoff, ...more };
    expect(fleetCutoverPreparedVolumeHandoffIntentRecord.validate(reseal(handoffType, content))).not.toEqual([]);
  });

  const { page } = vectors.pages[0]!;
  const pageOf = (handoffs: IFleetCutoverPreparedVolumeHandoffPage['handoffs'], more: object = {}) => ({
    ...page,
    handoffs,
    contentDigest: pageContentDigest(page.pageIndex, handoffs),
    ...more,
  });
  const entry = (nodeId: string, id: string) => ({ ...page.handoffs[0]!, nodeId, id });
  const many = (count: number) =>
    Array.from({ length: count }, (_, index) => entry('n', `vh-${String(index).padStart(3, '0')}`));

  it('a page takes 1..32 references in strict order', () => {
    const validate = (value: object) => fleetCutoverPreparedVolumeHandoffPageRecord.validate(value);
    expect(validate(pageOf([entry('a', 'vh-2'), entry('b', 'vh-1')]))).toEqual([]);
    expect(validate(pageOf(many(32)))).toEqual([]);
    for (const wrong of [
      [],
      many(33),
      [entry('a', 'vh-2'), entry('a', 'vh-1')],
      [entry('b', 'vh-1'), entry('a', 'vh-2')],
      [entry('a', 'vh-1'), entry('a', 'vh-1')],
    ]) {
      expect(validate(pageOf(wrong))).not.toEqual([]);
    }
  });

  it('a page commits to its index and references, not to the aggregate', () => {
    const validate = (value: object) => fleetCutoverPreparedVolumeHandoffPageRecord.validate(value);
    expect(validate({ ...page, aggregate: { ...page.aggregate, generation: 9 } })).toEqual([]);
    expect(validate({ ...page, pageIndex: 1 })).not.toEqual([]);
    expect(validate({ ...page, pageIndex: 4096 })).not.toEqual([]);
    expect(validate(pageOf([entry('a', 'vh-2')], { contentDigest: page.contentDigest }))).not.toEqual([]);
  });

  it('a page request names one of 4,096 pages', () => {
    const request = {
      nodeId: 'n',
      nodeToken: 'A'.repeat(43),
      protocol: { major: 32, minor: 15 },
      aggregate: null,
      pageIndex: 4095,
    };
    const { validate } = sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord;
    expect(validate(request)).toEqual([]);
    expect(validate({ ...request, aggregate: page.aggregate })).toEqual([]);
    for (const wrong of [
      { pageIndex: 4096 },
      { pageIndex: -1 },
      { pageIndex: 0.5 },
      { nodeToken: 'short' },
      { nodeId: '' },
      { aggregate: undefined },
    ]) {
      expect(validate({ ...request, ...wrong })).not.toEqual([]);
    }
  });

  it('references are exact: id, generation from 1, lower-case digest', () => {
    const { validate } = fleetCutoverPreparedVolumeHandoffPageRecord;
    const { aggregate } = page;
    for (const wrong of [
      { ...aggregate, generation: 0 },
      { ...aggregate, generation: 1.5 },
      { ...aggregate, generation: 2 ** 53 },
      { ...aggregate, generation: '1' },
      { ...aggregate, digest: aggregate.digest.toUpperCase() },
      { ...aggregate, digest: aggregate.digest.slice(0, -1) },
      { ...aggregate, digest: `${aggregate.digest}\n` },
      { ...aggregate, id: '-x' },
      { ...aggregate, id: 'x'.repeat(129) },
      { ...aggregate, id: 'é' },
      { ...aggregate, id: 'x\n' },
      null,
    ]) {
      expect(validate({ ...page, aggregate: wrong })).not.toEqual([]);
    }
    expect(validate({ ...page, aggregate: { ...aggregate, id: 'x'.repeat(128), generation: 2 ** 53 - 1 } })).toEqual(
      [],
    );
  });
});
