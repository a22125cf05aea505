/** The house's rules: who may import whom. Each failure says which rule is broken and why it is one. */
import { readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const source = join(root, 'src');

/** A feature imports only those that stand before it. */
const features = [
  'audit',
  'auth',
  'phase',
  'fleet',
  'inventory',
  'scope',
  'write-off',
  'volume-handoff',
  'held-fence',
  'admission',
  'observation',
  'gate',
  'ingress',
  'watch',
  'verify',
  'evidence',
];

/** Files that decide or derive: no database, no clock, no randomness, no transport. */
const pureFiles = [
  'features/audit/chain.ts',
  'features/audit/context.ts',
  'features/evidence/format.ts',
  'features/evidence/tables.ts',
  'features/gate/facts-about.ts',
  'features/gate/gates.ts',
  'features/held-fence/evidence.ts',
  'features/ingress/designation.ts',
  'features/phase/phase.ts',
  'features/inventory/report.ts',
  'features/inventory/verdict.ts',
  'features/scope/statement.ts',
  'features/volume-handoff/aggregate.ts',
  'features/volume-handoff/derivation.ts',
  'features/volume-handoff/derive-cluster.ts',
  'features/volume-handoff/derive-node.ts',
  'features/volume-handoff/handoff.ts',
  'features/volume-handoff/kept-volumes.ts',
  'features/volume-handoff/overlap.ts',
  'features/volume-handoff/page.ts',
  'features/write-off/write-off.ts',
];

interface Import {
  readonly from: string;
  /** A file below src, or a package's name. */
  readonly to: string;
  readonly typeOnly: boolean;
}

let files: string[];
let imports: Import[];

beforeAll(async () => {
  files = (await readdir(source, { recursive: true })).filter((name) => name.endsWith('.ts'));
  imports = files.flatMap(importsOf);
});

function importsOf(file: string): Import[] {
  const text = readFileSync(join(source, file), 'utf8');
  return [...text.matchAll(/^(?:import|export)\s+(type\s+)?(?:[^'"]*?\sfrom\s+)?['"]([^'"]+)['"]/gms)].map((match) => {
    const name = match[2]!;
    const to = name.startsWith('.')
      ? relative(source, resolve(source, dirname(file), name)).replace(/\.js$/, '.ts')
      : name;
    return { from: file, to, typeOnly: match[1] !== undefined };
  });
}

/** Files and packages that are loaded with a file: dynamic imports are not. */
function reachedFrom(entry: string): ReadonlySet<string> {
  const reached = new Set([entry]);
  // A set gives what is added while it is walked.
  for (const file of reached) {
    for (const each of imports) if (each.from === file && !each.typeOnly) reached.add(each.to);
  }
  return reached;
}

const say = (found: readonly Import[]) => found.map((each) => `src/${each.from} imports ${each.to}`);
const featureOf = (file: string) => /^features\/([^/]+)\//.exec(file)?.[1];

describe('imports', () => {
  it('the contract is a leaf: it compiles without the server', () => {
    const allowed = /^(contract\/|@sinclair\/typebox|@noble\/hashes)/;
    expect(say(imports.filter((each) => each.from.startsWith('contract/') && !allowed.test(each.to)))).toEqual([]);
  });

  it('clients import the contract only, so that they can be used elsewhere', () => {
    const allowed = /^(contract\/|client\/|undici|node:|@sinclair\/typebox)/;
    expect(say(imports.filter((each) => each.from.startsWith('client/') && !allowed.test(each.to)))).toEqual([]);
  });

  it('agents stand on client and contract, never on the server', () => {
    const banned = /^(features|db|http|app|service)/;
    expect(say(imports.filter((each) => each.from.startsWith('agents/') && banned.test(each.to)))).toEqual([]);
  });

  it('every feature folder has its place in the order', () => {
    const folders = new Set(files.flatMap((file) => featureOf(file.replaceAll('\\', '/')) ?? []));
    expect([...folders].filter((name) => !features.includes(name))).toEqual([]);
  });

  it('a feature looks only upward: it imports features that stand before it', () => {
    const found = imports.filter((each) => {
      const from = featureOf(each.from);
      const to = featureOf(each.to);
      return from !== undefined && to !== undefined && from !== to && features.indexOf(to) > features.indexOf(from);
    });
    expect(say(found)).toEqual([]);
  });

  it('only the composition root sees all features', () => {
    const allowed =
      /^(features|(app|service|key-ring|startup-error)\.ts|report-worker|cli\/|demo\/|http\/bind\.ts|http\/owner-handlers\.ts)/;
    const found = imports.filter(
      (each) => each.to.startsWith('features/') && !allowed.test(each.from) && !each.typeOnly,
    );
    expect(say(found)).toEqual([]);
  });

  it('pure files import no I/O', () => {
    const banned = /^(db\/(?!tables)|kysely|pg$|fastify|node:|clock|random|http\/)/;
    const found = imports.filter((each) => pureFiles.includes(each.from) && banned.test(each.to) && !each.typeOnly);
    expect(say(found)).toEqual([]);
    expect(pureFiles.filter((file) => !files.includes(file))).toEqual([]);
  });

  it('operations hold no fastify', () => {
    const found = imports.filter((each) => /operations\.ts$/.test(each.from) && /^fastify/.test(each.to));
    expect(say(found)).toEqual([]);
  });

  it('the command line starts without the server: what needs it is loaded by the action that does', () => {
    const reached = reachedFrom('cli/main.ts');
    const packages = [...reached].filter((name) => !files.includes(name) && !name.startsWith('node:'));
    expect(packages.filter((name) => !/^(@commander-js|@noble|@sinclair|undici$)/.test(name)).sort()).toEqual([]);
    expect([...reached].filter((name) => /^(db|http)\//.test(name))).toEqual([]);
    // The walk sees what it is to judge.
    expect([...reachedFrom('main.ts')]).toEqual(expect.arrayContaining(['fastify', 'kysely', 'pg', 'db/pool.ts']));
    expect([...reachedFrom('cli/spark-command.ts')]).not.toContain('dockerode');
    expect([...reachedFrom('agents/docker/engine-source.ts')]).toContain('dockerode');
  });

  it('nothing is called utils, common, helpers, types, and there is no barrel', () => {
    const banned = /(^|\/)(utils?|common|helpers?|types|index)(\.ts|\/)/;
    expect(files.filter((file) => banned.test(file))).toEqual([]);
  });
});

describe('tables', () => {
  it('each private table is written by one feature', () => {
    const writers = new Map<string, Set<string>>();
    for (const file of files) {
      const text = readFileSync(join(source, file), 'utf8');
      const written = text.matchAll(
        /(?:insert into|update|delete from|insertInto\(|updateTable\(|deleteFrom\()\s*'?(control\.\w+)/g,
      );
      for (const [, table] of written) {
        const owner = featureOf(file) ?? file;
        writers.set(table!, (writers.get(table!) ?? new Set()).add(owner));
      }
    }
    const shared = [...writers]
      .filter(([, owners]) => owners.size > 1)
      .map(([table, owners]) => `${table}: ${[...owners].join(', ')}`);
    expect(shared).toEqual([]);
    expect(writers.size).toBeGreaterThan(20);
  });

  it('the row types follow the migrations', async () => {
    const tables = readFileSync(join(source, 'db', 'tables.ts'), 'utf8');
    const names = (await readdir(join(root, 'migrations'))).sort();
    const created = new Set<string>();
    for (const name of names) {
      const text = readFileSync(join(root, 'migrations', name), 'utf8');
      for (const [, table] of text.matchAll(/create table control\.(\w+)/g)) created.add(table!);
    }
    expect([...created].filter((table) => !tables.includes(`'control.${table}':`))).toEqual([]);
  });
});
