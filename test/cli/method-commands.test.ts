/** Every owner method has its command, and every advice names commands that exist. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { describe, expect, it } from 'vitest';
import { advice } from '../../src/cli/advice.js';
import { expectationsOf } from '../../src/cli/expectations.js';
import { registerHostCommands } from '../../src/cli/host-commands.js';
import { isIssuing } from '../../src/cli/issuing-method.js';
import { methodOf } from '../../src/cli/method-command.js';
import { registerVerify } from '../../src/cli/verify-command.js';
import { methodNames, methods, type TMethodName } from '../../src/contract/methods.js';
import { problemCatalogue, type TProblemCode } from '../../src/contract/problems.js';
import { commandsOf, programOf, runCommand } from '../support/command-line.js';

/** Methods without a command of their own, and why. It may only shrink. */
const without: Partial<Record<TMethodName, string>> = {};

/** Commands that take what they expect from elsewhere than the service and `--expect`, and from where. It may only shrink. */
const expecting: Readonly<Record<string, string>> = { 'scope apply': 'the file, which was made for it and says it' };

const host = { environment: {}, stdout: () => {}, stderr: () => {}, setExitCode: () => {} };
const program = programOf(host);
registerHostCommands(program, host);
registerVerify(program, host);
const commands = commandsOf(program);
const named = [...commands].flatMap(([words, command]) => {
  const method = methodOf(command);
  return method === undefined ? [] : [{ words, command, method }];
});
const flags = (command: CommandUnknownOpts) => command.options.map((option) => option.long ?? '');

describe('the commands', () => {
  it('are one for every owner method', () => {
    const covered = new Set(named.map(({ method }) => method));
    expect(methodNames.filter((name) => !covered.has(name))).toEqual(Object.keys(without));
  });

  it.each(named)('$words says what it is for, and has the options of $method', async ({ words, command, method }) => {
    const { mutation, request } = methods[method];
    expect(command.description()).not.toBe('');
    expect(flags(command)).toEqual(
      expect.arrayContaining(['--url', '--token-file', '--ca-file', '--config', '--json']),
    );
    // A noun's own words may read first what they then change; what changes something can always be tried and repeated.
    if (mutation) expect(flags(command)).toEqual(expect.arrayContaining(['--dry-run', '--mutation-id']));
    expect(flags(command).includes('--dry-run')).toBe(mutation);
    const pinned = mutation && expectationsOf(method).length > 0 && !Object.hasOwn(expecting, words);
    expect(flags(command).includes('--expect')).toBe(pinned);
    expect(flags(command).includes('--secrets-file')).toBe(isIssuing(method));
    if (Object.hasOwn(request.properties, 'cursor') && method !== 'watchFleetCutover')
      expect(flags(command)).toContain('--limit');
    const help = await runCommand({}, [...words.split(' '), '--help']);
    expect(help).toMatchObject({ code: 0, stderr: '' });
    expect(help.stdout).toContain(`fleet-cutover ${words} `);
  });

  it('take no token on the command line', () => {
    for (const [words, command] of commands) {
      expect([words, flags(command).filter((flag) => /token$|secret$|password/.test(flag))]).toEqual([words, []]);
    }
  });
});

describe('the advice', () => {
  const codes = Object.keys(problemCatalogue) as TProblemCode[];

  it.each(codes)('about %s is there, and its commands and options exist', (code) => {
    const text = advice[code];
    expect(text.length).toBeGreaterThan(20);
    for (const [, typed = ''] of text.matchAll(/`([^`]+)`/g)) {
      const [words = '', ...options] = typed.split(/ (?=--)/);
      const command = commands.get(words);
      expect([typed, command?.name()]).toEqual([typed, words.split(' ').at(-1)]);
      for (const option of options) expect(flags(command!)).toContain(option.split(' ')[0]);
    }
    const everywhere = new Set([...commands.values()].flatMap(flags));
    for (const [option] of text.replaceAll(/`[^`]+`/g, '').matchAll(/--[a-z-]+/g)) expect(everywhere).toContain(option);
  });

  it('is about the codes of the catalogue only', () => {
    expect(Object.keys(advice).sort()).toEqual([...codes].sort());
  });
});
