import { describe, expect, it } from 'vitest';
import {
  fleetCutoverPreparedVolumeHandoffPageRecord,
  type IFleetCutoverPreparedVolumeHandoffPage,
} from '../../src/contract/handoff.js';
import { entriesPerPage, makePage, readPage, splicePage } from '../../src/features/volume-handoff/page.js';
import { readStored } from '../../src/stored-record.js';
import { handoffSet, referenceNamed } from '../support/handoff-set.js';
import { independentBareDigest, independentJson } from '../support/independent-digest.js';

const entries = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    nodeId: 'node-1',
    ...referenceNamed(`vh-${String(index).padStart(2, '0')}`),
  }));

describe.each([1, 2, 32])('a page of %i', (count) => {
  const handoffs = entries(count);
  const page = makePage(7, handoffs);

  it('digests index and references alone', () => {
    expect(page.contentDigest).toBe(independentBareDigest({ pageIndex: 7, handoffs }));
    expect(page.first).toEqual(handoffs[0]);
  });

  it('is canonical JSON once the aggregate’s reference is spliced in, whichever it is', () => {
    for (const aggregate of [referenceNamed('ha-1'), referenceNamed('ha-2', 99)]) {
      const text = splicePage(aggregate, page.tail);
      const whole = { aggregate, pageIndex: 7, handoffs, contentDigest: page.contentDigest };
      expect(text).toBe(independentJson(whole));
      expect(
        fleetCutoverPreparedVolumeHandoffPageRecord.validate(
          JSON.parse(text) as IFleetCutoverPreparedVolumeHandoffPage,
        ),
      ).toEqual([]);
    }
  });

  it('is read back', () => {
    expect(readPage(page.tail, page.contentDigest)).toEqual({ handoffs, pageIndex: 7 });
  });

  it('is not read where any byte is another one, or the digest is', () => {
    for (let at = 0; at < page.tail.length; at += 13) {
      const flipped =
        page.tail.slice(0, at) + String.fromCharCode(page.tail.charCodeAt(at) ^ 1) + page.tail.slice(at + 1);
      expect(readPage(flipped, page.contentDigest)).toBeNull();
    }
    expect(readPage(page.tail, referenceNamed('x').digest)).toBeNull();
    for (const text of ['', page.tail.slice(0, -1), `${page.tail} `, page.tail.slice(1)])
      expect(readPage(text, page.contentDigest)).toBeNull();
  });
});

it('has room for 32', () => {
  expect(entriesPerPage).toBe(32);
});

describe('a stored record', () => {
  const { aggregate } = handoffSet({ nodes: { 'node-1': 2 } });
  const text = independentJson(aggregate);
  const read = (stored: string, reference = aggregate) =>
    readStored('IFleetCutoverPreparedVolumeHandoffAggregate', stored, reference);

  it('is given where it is what its reference commits to', () => {
    expect(read(text)).toEqual(aggregate);
  });

  it('is not where content, digest, generation, type or form is another', () => {
    expect(read(text.replace('"requiredCount":2', '"requiredCount":3'))).toBeNull();
    expect(read(text, { ...aggregate, generation: 2 })).toBeNull();
    expect(read(text, { ...aggregate, digest: referenceNamed('x').digest })).toBeNull();
    expect(read(text.slice(1))).toBeNull();
    expect(readStored('IFleetCutoverPreparedVolumeHandoffIntent', text, aggregate)).toBeNull();
    for (const nonsense of ['null', '1', '[]', '{}', '"x"']) expect(read(nonsense)).toBeNull();
  });
});
