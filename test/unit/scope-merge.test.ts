/** An earlier file, and a scope that somebody else has changed since: nobody's statement is undone, and no data is let go unseen. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseScopeFile } from '../../src/cli/scope/parse-scope-file.js';
import { replaceFile } from '../../src/cli/scope/replace-file.js';
import { changeLines, scopeChanges } from '../../src/cli/scope/scope-diff.js';
import type { IScopeFile } from '../../src/cli/scope/scope-file.js';
import { openStatements, statementOf } from '../../src/cli/scope/scope-request.js';
import { suggest, type SuggestionFacts } from '../../src/cli/scope/suggestion.js';
import { type LineSides, mergeLine } from '../../src/cli/scope/three-way.js';
import { scopeFileText } from '../../src/cli/scope/write-scope-file.js';
import type { IFleetCutoverScope } from '../../src/contract/scope.js';
import { referenceNamed } from '../support/handoff-set.js';
import { scope, scopeService, specMount, swarmService } from '../support/snapshots.js';

describe('a line', () => {
  // Upper case lets data go; `?` is open.
  const rules = {
    same: (left: string, right: string) => left === right,
    letsGo: (value: string) => value !== '?' && value === value.toUpperCase(),
    opened: () => '?',
  };
  const sides = (text: string): LineSides<string> => {
    const [base, mine, theirs] = text.split(' ').map((each) => (each === '-' ? undefined : each));
    const value = mine?.replace('~', '');
    return {
      base,
      mine: value === undefined ? undefined : { value, confirmed: !mine!.endsWith('~') },
      theirs,
    };
  };
  const told = (text: string, moved = true) => {
    const line = mergeLine(sides(text), rules, moved);
    return line.kind === 'absent' ? `- by ${line.by}` : `${line.kind} ${line.value}${line.confirmed ? '' : '~'}`;
  };

  it.each([
    // base mine theirs; ~ is not confirmed, - is nothing
    ['- - -', '- by null'],
    ['- - a', 'theirs a'],
    ['- - A', 'theirs A'],
    ['a - a', '- by me'],
    ['a - -', '- by them'],
    ['a - b', 'conflict b~'],
    ['a - B', 'conflict ?~'],
    ['a a a', 'theirs a'],
    ['a a b', 'theirs b'],
    ['A A b', 'theirs b'],
    ['A A -', '- by them'],
    ['a b a', 'mine b'],
    ['- b -', 'mine b'],
    ['a B a', 'again B~'],
    ['- B -', 'again B~'],
    ['a b b', 'theirs b'],
    ['- B B', 'theirs B'],
    ['a b c', 'conflict c~'],
    ['a b C', 'conflict ?~'],
    ['a B c', 'conflict c~'],
    ['a B C', 'conflict C~'],
    ['- b c', 'conflict c~'],
    ['a b -', 'conflict b~'],
    ['a B -', 'conflict ?~'],
    ['- b~ -', 'mine b~'],
    ['- B~ -', 'mine B~'],
    ['- b~ c', 'theirs c'],
    ['a a~ a', 'mine a~'],
    ['a b~ a', 'mine b~'],
    ['a b~ b', 'mine b~'],
    ['a b~ c', 'conflict c~'],
    ['a a~ B', 'conflict ?~'],
    ['A A~ -', '- by them'],
    ['A B~ -', 'conflict ?~'],
  ])('%s is %s', (given, expected) => {
    expect(told(given)).toBe(expected);
  });

  it('that lets data go stays confirmed in a file that was made for the scope as it is', () => {
    expect([told('a B a', false), told('- B -', false)]).toEqual(['mine B', 'mine B']);
  });
});

describe('a file that was made for an earlier scope', () => {
  const key = { nodeId: 'n1', serviceId: 'sv-db', mountIdentityDigest: `sha256:${'a'.repeat(64)}` as const };
  const released = { ...key, reason: 'not needed' };
  const cache = { target: '/cache', class: 'ephemeral' as const, reason: 'a cache' };
  const db = (mounts = [cache]) => scopeService('s-db', { serviceId: 'sv-db', mounts });
  const relay = scopeService('s-flow', { class: 'coreflow', serviceId: null });
  const old = scopeService('s-flow', { class: 'excluded', serviceId: null, reason: 'old' });
  const first = scope({
    services: [db(), old],
    coreflow: { state: 'none', reason: 'none' },
    releasedEntries: [released],
  });
  const second = scope({ generation: 2, services: [db([]), relay], coreflow: { state: 'classified' } });
  const facts = (over: Partial<SuggestionFacts> = {}): SuggestionFacts => ({
    clusterId: 'c1',
    runtime: referenceNamed('rt-1'),
    inventory: referenceNamed('ms-1'),
    services: [
      swarmService('s-db', { name: 'db', mounts: [specMount('data')] }),
      swarmService('s-flow', { name: 'coreflow' }),
    ],
    scope: null,
    blockers: [],
    owners: new Map([['db', 'sv-db']]),
    from: null,
    base: null,
    ...over,
  });
  const textOf = (given: SuggestionFacts) =>
    scopeFileText(suggest(given), { volumes: [], volumesLeftOut: 0, anonymous: [] });
  const parse = (text: string) => parseScopeFile(new TextEncoder().encode(text), 'scope.yaml');
  const madeFor = (stated: IFleetCutoverScope | null) => parse(textOf(facts({ scope: stated }))).file;
  const renewed = (from: IScopeFile, base: IFleetCutoverScope | null, now: IFleetCutoverScope) => {
    const given = facts({ scope: now, from, base });
    const { conflicts, again, dropped } = suggest(given);
    const text = textOf(given);
    const parsed = parse(text);
    const changes = changeLines(scopeChanges(now, statementOf(parsed), (id) => id));
    return { text, file: parsed.file, open: openStatements(parsed), changes, conflicts, again, dropped };
  };
  const edited = (file: IScopeFile, id: string, over: Partial<IScopeFile['services'][number]>): IScopeFile => ({
    ...file,
    services: file.services.map((each) => (each.swarmServiceId === id ? { ...each, ...over } : each)),
  });

  it('and was not edited becomes the scope as it is', () => {
    const { open, changes, conflicts, again, dropped } = renewed(madeFor(first), first, second);
    expect([open, changes, conflicts, again]).toEqual([[], ['nothing changes'], 0, 0]);
    expect(dropped).toEqual([expect.stringMatching(/^releasedEntries .*sv-db.*: the scope states it no more$/)]);
  });

  it('keeps what its person has changed, beside what somebody else has', () => {
    const ann = edited(madeFor(first), 's-db', { serviceId: 'sv-mine' });
    const { open, changes } = renewed(ann, first, second);
    expect(open).toEqual([]);
    expect(changes).toEqual(['~ services: s-db: application of sv-db → application of sv-mine']);
  });

  it('applied before, does not bring back confirmed what somebody has taken back since', () => {
    // Made for no scope, applied as the first; the second takes back the release and the class of the mount.
    const ann = { ...madeFor(first), expectedScope: null };
    const { file, open, conflicts, again, text } = renewed(ann, null, second);
    expect(file.releasedEntries).toEqual([{ ...released, confirmed: false }]);
    expect(file.services.find(({ swarmServiceId }) => swarmServiceId === 's-db')).toMatchObject({
      confirmed: true,
      mounts: [{ ...cache, confirmed: false }],
    });
    expect(file.services.find(({ swarmServiceId }) => swarmServiceId === 's-flow')).toMatchObject({
      class: 'coreflow',
      confirmed: false,
    });
    expect(file.coreflow).toEqual({ state: 'classified', confirmed: false });
    expect([open.length, conflicts, again]).toEqual([4, 2, 2]);
    expect(text).toContain('your file says excluded (old); the scope (generation 2) says coreflow');
    expect(text).toContain('your file says none (none); the scope (generation 2) says classified');
    expect(text).toContain('says no class, so data: confirm it again');
  });

  it('shows both sides of a conflict, and confirming all of it at once lets nothing go', () => {
    const mine = edited(madeFor(first), 's-db', { mounts: [{ ...cache, class: 'external', confirmed: true }] });
    const ann = { ...mine, releasedEntries: [{ ...released, reason: 'moved by hand', confirmed: true }] };
    const { file, text, conflicts } = renewed(ann, first, second);
    expect(conflicts).toBe(2);
    expect(file.releasedEntries).toEqual([{ ...released, reason: null, confirmed: false }]);
    expect(file.services.find(({ swarmServiceId }) => swarmServiceId === 's-db')?.mounts).toEqual([
      { target: '/cache', class: null, reason: null, confirmed: false },
    ]);
    expect(text).toContain('your file says external (a cache); the scope (generation 2) says no class, so data');
    expect(text).toContain('your file says stated (moved by hand); the scope (generation 2) says no statement');
    const messages = openStatements(parse(text.replaceAll('confirmed: false', 'confirmed: true'))).map(
      ({ message }) => message,
    );
    expect(messages).toEqual([
      'db, mount /cache, has no class',
      'db, mount /cache, has no reason',
      'releasedEntries has no reason',
    ]);
  });

  it('leaves open a service that somebody has excluded and its person has given another owner', () => {
    const ann = edited(madeFor(first), 's-db', { serviceId: 'sv-mine' });
    const excluded = scopeService('s-db', { class: 'excluded', serviceId: null, reason: 'gone' });
    const { file, conflicts } = renewed(ann, first, scope({ ...first, generation: 2, services: [excluded, old] }));
    expect(conflicts).toBe(1);
    expect(file.services.find(({ swarmServiceId }) => swarmServiceId === 's-db')).toMatchObject({
      class: null,
      confirmed: false,
    });
  });

  it('keeps a conflict unconfirmed however often it is renewed', () => {
    const ann = { ...madeFor(first), expectedScope: null };
    const once = renewed(ann, null, second);
    const twice = renewed(once.file, second, second);
    expect(twice.file).toEqual(once.file);
    expect(twice.open.map(({ message }) => message).sort()).toEqual(once.open.map(({ message }) => message).sort());
  });

  it('keeps out what its person has deleted, unless somebody has changed it since', () => {
    const made = madeFor(first);
    const ann = { ...edited(made, 's-db', { mounts: [] }), releasedEntries: [] };
    const third = scope({ ...first, generation: 2, coreflow: { state: 'none', reason: 'there is none' } });
    expect(renewed(ann, first, third)).toMatchObject({
      open: [],
      changes: [expect.stringContaining('- mounts: s-db /cache'), expect.stringContaining('- releasedEntries')],
    });
    const changed = scope({ ...first, generation: 2, releasedEntries: [{ ...released, reason: 'empty' }] });
    expect(renewed(ann, first, changed).file.releasedEntries).toEqual([{ ...key, reason: null, confirmed: false }]);
  });

  it('takes a scope that is stated where it had proposals only', () => {
    const { open, changes } = renewed(madeFor(null), null, second);
    expect([open, changes]).toEqual([[], ['nothing changes']]);
  });
});

it('a file that was saved since it was read is left as it is', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'scope-replace-'));
  try {
    const path = join(directory, 'scope.yaml');
    await writeFile(path, 'read');
    const read = await readFile(path);
    await writeFile(path, 'edit');
    await expect(replaceFile(path, read, 'new')).rejects.toThrow(/was changed while this ran/);
    expect([await readFile(path, 'utf8'), await readdir(directory)]).toEqual(['edit', ['scope.yaml']]);
    await replaceFile(path, await readFile(path), 'new');
    expect([await readFile(path, 'utf8'), await readdir(directory)]).toEqual(['new', ['scope.yaml']]);
    await rm(path);
    await expect(replaceFile(path, read, 'new')).rejects.toThrow(/cannot be written \(ENOENT\)/);
    expect(await readdir(directory)).toEqual([]);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
