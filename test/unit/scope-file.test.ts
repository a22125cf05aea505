/** The file that people edit: written, read back, refused line by line. */
import { describe, expect, it } from 'vitest';
import { openStatements, statementOf, unknownServices } from '../../src/cli/scope/scope-request.js';
import { changeLines, scopeChanges } from '../../src/cli/scope/scope-diff.js';
import type { IScopeFile } from '../../src/cli/scope/scope-file.js';
import { maximumScopeFileBytes, parseScopeFile } from '../../src/cli/scope/parse-scope-file.js';
import { ScopeFileRefused } from '../../src/cli/scope/scope-file-refused.js';
import { suggest, type SuggestionFacts } from '../../src/cli/scope/suggestion.js';
import { scopeFileText } from '../../src/cli/scope/write-scope-file.js';
import { normalizeScopeStatement } from '../../src/contract/scope.js';
import { makeBlocker } from '../../src/features/volume-handoff/derive-node.js';
import { referenceNamed } from '../support/handoff-set.js';
import {
  requiredEntry,
  scope,
  scopeService,
  scopeStatement,
  specMount,
  swarmService,
  volumeMount,
} from '../support/snapshots.js';

const facts = (over: Partial<SuggestionFacts> = {}): SuggestionFacts => ({
  clusterId: 'c1',
  runtime: referenceNamed('rt-1'),
  inventory: referenceNamed('ms-1'),
  services: [
    swarmService('s-db', { name: 'db', mounts: [specMount('data')] }),
    swarmService('s-flow', { name: 'coreflow' }),
    swarmService('s-nfs', { name: 'media', mounts: [specMount('m', '/media', { driver: 'plugin' })] }),
  ],
  scope: null,
  blockers: [],
  owners: new Map([
    ['db', 'sv-db'],
    ['media', 'sv-media'],
  ]),
  from: null,
  base: null,
  ...over,
});
const nothing = { volumes: [], volumesLeftOut: 0, anonymous: [] };
const textOf = (given: SuggestionFacts) => scopeFileText(suggest(given), nothing);
const parse = (text: string) => parseScopeFile(new TextEncoder().encode(text), 'scope.yaml');
const errorsOf = (text: string) => {
  try {
    return openStatements(parse(text));
  } catch (error) {
    if (error instanceof ScopeFileRefused) return error.errors;
    throw error;
  }
};
const lineOf = (text: string, part: string) => text.split('\n').findIndex((line) => line.includes(part)) + 1;
const confirmAll = (text: string) => text.replaceAll('confirmed: false', 'confirmed: true');

describe('a suggestion', () => {
  it('read back is itself, whatever names hold', () => {
    const nasty = [
      'a\nb: 1',
      'x # y',
      '"',
      "'",
      '- a',
      '123',
      'true',
      '~',
      '{{.Task.Slot}}',
      '\u001b[31m',
      'a\rb: c',
      '\u2028',
    ];
    const services = nasty.map((name, index) =>
      swarmService(`s${index}`, { name, mounts: [specMount(name, `/${name}`)] }),
    );
    const given = facts({ services, owners: new Map(nasty.map((name, index) => [name, `sv-${index}`])) });
    const { file } = suggest(given);
    const read = parse(textOf(given)).file;
    expect(
      read.services.map(({ name, swarmServiceId, class: c, serviceId }) => [name, swarmServiceId, c, serviceId]),
    ).toEqual(
      file.services.map(({ name, swarmServiceId, class: c, serviceId }) => [name, swarmServiceId, c, serviceId]),
    );
    // eslint-disable-next-line no-control-regex
    expect(textOf(given)).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
  });

  it('is never a statement: nothing of it is confirmed, and confirming all of it confirms no open one', () => {
    const text = textOf(facts());
    const { file } = parse(text);
    expect(file.services.every(({ confirmed }) => !confirmed)).toBe(true);
    expect(file.coreflow).toEqual({ state: 'undetermined' });
    expect(errorsOf(text)).toHaveLength(5);
    const confirmed = confirmAll(text);
    expect(errorsOf(confirmed)).toEqual([{ line: lineOf(confirmed, 'class: null'), message: 'coreflow has no class' }]);
  });

  it('puts what is to decide first, with its explanation', () => {
    const text = textOf(facts());
    expect(parse(text).file.services.map(({ name }) => name)).toEqual(['coreflow', 'media', 'db']);
    expect(lineOf(text, 'To decide')).toBeLessThan(lineOf(text, 'looks like the legacy relay'));
    expect(lineOf(text, 'its driver is plugin')).toBeLessThan(lineOf(text, 'class: external'));
  });

  it('takes over what the scope states, as it is', () => {
    const stated = scope({
      services: [
        scopeService('s-db', { serviceId: 'sv-other' }),
        scopeService('s-old', { class: 'excluded', reason: 'theirs' }),
      ],
      coreflow: { state: 'none', reason: 'there is none' },
      dormantVolumes: [{ nodeId: 'n1', volumeName: 'v', reason: 'empty' }],
    });
    const { file } = parse(textOf(facts({ scope: stated })));
    const byId = new Map(file.services.map((service) => [service.swarmServiceId, service]));
    expect(byId.get('s-db')).toMatchObject({ class: 'application', serviceId: 'sv-other', confirmed: true });
    expect(byId.get('s-old')).toMatchObject({ class: 'excluded', reason: 'theirs', confirmed: true });
    expect(byId.get('s-nfs')).toMatchObject({ class: 'application', confirmed: false });
    expect(file.dormantVolumes).toEqual([{ nodeId: 'n1', volumeName: 'v', reason: 'empty', confirmed: true }]);
    expect([file.coreflow.state, file.expectedScope?.digest]).toEqual(['none', stated.digest]);
  });

  it('lets a service that was made again take over its owner and its mounts, unconfirmed', () => {
    const mounts = [{ target: '/x', class: 'host-path' as const, reason: 'logs' }];
    const stated = scope({ services: [scopeService('s-before', { serviceId: 'sv-db', mounts })] });
    const { file } = parse(textOf(facts({ scope: stated })));
    expect(file.services.find(({ swarmServiceId }) => swarmServiceId === 's-db')).toMatchObject({
      serviceId: 'sv-db',
      mounts: [{ ...mounts[0], confirmed: false }],
      confirmed: false,
    });
    expect(file.services.some(({ swarmServiceId }) => swarmServiceId === 's-before')).toBe(false);
  });

  it('from an earlier file keeps every answer, adds what is new and says what is gone', () => {
    const first = parse(textOf(facts())).file;
    const edited: IScopeFile = {
      ...first,
      coreflow: { state: 'classified' },
      services: first.services.map((service) =>
        service.name === 'coreflow'
          ? { ...service, class: 'coreflow', serviceId: null, confirmed: true }
          : service.name === 'db'
            ? { ...service, class: 'excluded', serviceId: null, reason: 'moves by hand', confirmed: true }
            : service,
      ),
    };
    const later = facts({
      inventory: referenceNamed('ms-1', 2),
      services: [...facts().services.slice(0, 2), swarmService('s-new', { name: 'new' })],
      from: edited,
    });
    const { file, dropped } = suggest(later);
    const byName = new Map(file.services.map((service) => [service.name, service]));
    expect(byName.get('coreflow')).toMatchObject({ class: 'coreflow', confirmed: true });
    expect(byName.get('db')).toMatchObject({ class: 'excluded', reason: 'moves by hand', confirmed: true });
    expect(byName.get('new')).toMatchObject({ class: 'application', serviceId: null, confirmed: false });
    expect(file.coreflow).toEqual({ state: 'classified' });
    expect(file.inventory.generation).toBe(2);
    expect(dropped).toEqual([expect.stringContaining('media')]);
    // Once more from what it wrote: nothing moves.
    const again = parse(scopeFileText(suggest(later), nothing)).file;
    expect(parse(textOf({ ...later, from: again })).file).toEqual(again);
  });

  it('offers the owner of two keys twice, and no more once one of them is named', () => {
    const left = requiredEntry('s-db', volumeMount('v'), { serviceId: 'sv-db' });
    const right = requiredEntry('s-nfs', volumeMount('v', '/other'), { serviceId: 'sv-media' });
    const about = (entry: typeof left, swarmServiceId: string) =>
      makeBlocker('overlap-keys', 'both', { nodeId: entry.nodeId, swarmServiceId, target: '/x', entry }).record;
    const stated = scope({
      services: [scopeService('s-db', { serviceId: 'sv-db' }), scopeService('s-nfs', { serviceId: 'sv-media' })],
    });
    const given = facts({ scope: stated, blockers: [about(left, 's-nfs'), about(right, 's-db')] });
    const { file } = suggest(given);
    expect(file.overlapOwners.map(({ serviceId, confirmed }) => [serviceId, confirmed])).toEqual([
      ['sv-db', false],
      ['sv-media', false],
    ]);
    const named = { ...file, overlapOwners: [{ ...file.overlapOwners[0]!, reason: 'it writes', confirmed: true }] };
    expect(suggest({ ...given, from: named }).file.overlapOwners).toEqual(named.overlapOwners);
  });
});

describe('a file is refused', () => {
  const whole = confirmAll(textOf(facts({ services: facts().services.filter(({ name }) => name !== 'coreflow') })));
  const edit = (from: string | RegExp, to: string) => {
    const edited = whole.replace(from, to);
    expect(edited).not.toBe(whole);
    return edited;
  };

  it('unless it is whole', () => {
    expect(errorsOf(whole)).toEqual([]);
  });

  it.each<[string, string | RegExp, string, string, string]>([
    ['an unknown key', 'swarmServiceId: s-db', 'swarmServiceId: s-db\n    clas: x', 'clas: x', 'clas is not a key'],
    ['a key twice', 'swarmServiceId: s-db', 'swarmServiceId: s-db\n    swarmServiceId: s-db', '', 'unique'],
    ['__proto__', 'swarmServiceId: s-db', 'swarmServiceId: s-db\n    __proto__: {}', '__proto__', '__proto__'],
    [
      'a missing key',
      / {4}class: application\n {4}serviceId: sv-db\n/,
      '    serviceId: sv-db\n',
      'name: db',
      'class is missing',
    ],
    [
      'a class that is none',
      /class: application\n {4}serviceId: sv-db/,
      'class: wrong\n    serviceId: sv-db',
      'class: wrong',
      'has to be one of application',
    ],
    ['confirmed as a word', /confirmed: true$/m, 'confirmed: yes', 'confirmed: yes', 'true or false'],
    ['a number for an id', 'serviceId: sv-db', 'serviceId: 123', 'serviceId: 123', 'quote'],
    ['an anchor', 'serviceId: sv-db', 'serviceId: &a sv-db', '&a', 'anchor'],
    ['an alias', 'serviceId: sv-db', 'serviceId: *a', '*a', 'alias'],
    ['a tag', 'serviceId: sv-db', 'serviceId: !!str sv-db', '!!str', 'tag'],
    ['an unknown tag', 'serviceId: sv-db', 'serviceId: !x sv-db', '!x', 'tag'],
    ['no owner', 'serviceId: sv-db', 'serviceId: null', 'serviceId: null', 'has no owner'],
    ['an owner that is none', 'serviceId: sv-db', 'serviceId: ""', 'serviceId: ""', 'identifier'],
    [
      'excluded without a reason',
      /class: application\n {4}serviceId: sv-db/,
      'class: excluded\n    serviceId: null',
      'name: db',
      'excluded without a reason',
    ],
    ['a blank reason', /reason: "driver[^"]*"|reason: driver[^,]*/, 'reason: "  "', 'reason: "  "', 'has no reason'],
    [
      'coreflow without a reason',
      '{ state: undetermined }',
      '{ state: none, reason: " " }',
      'coreflow: {',
      'needs a reason',
    ],
    [
      'coreflow that is none',
      '{ state: undetermined }',
      '{ state: maybe }',
      'state: maybe',
      'has to be { state: undetermined }',
    ],
    ['another format', 'fleet-cutover-scope/1', 'fleet-cutover-scope/2', 'format:', 'format'],
    ['two documents', 'format:', '---\na: 1\n---\nformat:', '', 'multiple documents'],
  ])('with %s', (_case, from, to, part, message) => {
    const text = edit(from, to);
    const errors = errorsOf(text);
    expect(errors.map((error) => error.message).join('\n')).toContain(message);
    if (part !== '') expect(errors.map(({ line }) => line)).toContain(lineOf(text, part));
  });

  it.each<[string, Uint8Array]>([
    ['empty', new Uint8Array()],
    ['no object', new TextEncoder().encode('- a\n')],
    ['not UTF-8', new Uint8Array([0x61, 0x3a, 0xff])],
    ['nested without end', new TextEncoder().encode('['.repeat(200_000))],
    ['a byte too long', new Uint8Array(maximumScopeFileBytes + 1)],
  ])('that is %s', (_case, bytes) => {
    expect(() => parseScopeFile(bytes, 'scope.yaml')).toThrow(/scope\.yaml/);
  });

  it('with services that nobody knows, or under another name', () => {
    const text = edit('swarmServiceId: s-db', 'swarmServiceId: s-gone');
    const known = { inventory: new Map([['s-nfs', 'renamed']]), scope: new Set<string>() };
    expect(unknownServices(parse(text), known)).toEqual([
      { line: lineOf(text, 'name: media'), message: 's-nfs is called renamed, not media' },
      { line: lineOf(text, 's-gone'), message: 's-gone is no swarm service of the inventory or the scope' },
    ]);
    expect(
      unknownServices(parse(text), { inventory: new Map([['s-nfs', 'media']]), scope: new Set(['s-gone']) }),
    ).toEqual([]);
  });

  it('with two errors of one line at most once each, in the order of the lines', () => {
    const errors = errorsOf(textOf(facts()));
    expect(errors.map(({ line }) => line)).toEqual(errors.map(({ line }) => line).sort((a, b) => a - b));
  });
});

describe('a whole file', () => {
  it('is the statement that the service takes', () => {
    const stated = scope({
      ...scopeStatement({
        services: [
          scopeService('s-db', { mounts: [{ target: '/x', class: 'host-path', reason: 'logs' }] }),
          scopeService('s-nfs', { class: 'excluded', reason: 'theirs' }),
          scopeService('s-flow', { class: 'ingress' }),
        ],
        overlapConfirmations: [
          { nodeId: 'n1', mounter: { kind: 'container', name: '123' }, target: '/a: b', reason: 'no: never' },
          { nodeId: 'n1', mounter: { kind: 'service', swarmServiceId: 's-db' }, target: '/', reason: '#' },
        ],
        dormantVolumes: [{ nodeId: 'n1', volumeName: '0x1F', reason: 'null' }],
        releasedAnonymousVolumes: [{ serviceId: 'sv-s-db', reason: 'true' }],
      }),
    });
    const statement = statementOf(parse(textOf(facts({ scope: stated }))));
    const {
      services,
      coreflow,
      overlapOwners,
      overlapConfirmations,
      dormantVolumes,
      releasedEntries,
      releasedAnonymousVolumes,
    } = stated;
    expect(normalizeScopeStatement(statement)).toEqual(
      normalizeScopeStatement({
        services,
        coreflow,
        overlapOwners,
        overlapConfirmations,
        dormantVolumes,
        releasedEntries,
        releasedAnonymousVolumes,
      }),
    );
    expect(changeLines(scopeChanges(stated, statement, (id) => id))).toEqual(['nothing changes']);
  });

  it('tells what it changes', () => {
    const before = scopeStatement({ services: [scopeService('a'), scopeService('b'), scopeService('c')] });
    const after = scopeStatement({
      services: [
        scopeService('a', { class: 'excluded', reason: 'theirs' }),
        scopeService('b', { mounts: [{ target: '/x', class: 'external', reason: 'nfs' }] }),
      ],
      coreflow: { state: 'undetermined' },
      dormantVolumes: [{ nodeId: 'n1', volumeName: 'v', reason: 'empty' }],
    });
    expect(changeLines(scopeChanges(before, after, (id) => `name-${id}`))).toEqual([
      '~ coreflow: relay: none (there is no relay) → undetermined',
      '~ services: name-a: application of sv-a → excluded (theirs)',
      '- services: name-c: application of sv-c',
      '+ mounts: name-b /x: external (nfs)',
      '+ dormantVolumes: n1 v: empty',
    ]);
    expect(
      scopeChanges(null, after, (id) => id).every(({ change }) => change === 'comes' || change === 'changes'),
    ).toBe(true);
  });
});
