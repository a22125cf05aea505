/** What the README promises: its command lines, tables and links. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { projectRoot } from './installed-package.js';

export const readReadme = () => readFile(join(projectRoot, 'README.md'), 'utf8');

const fences = /^```(\w*)\n(.*?)^```$/gms;

/** The command lines of its `sh` blocks, in order, without what stands behind ` #`. */
export function blockCommands(readme: string): string[] {
  return [...readme.matchAll(fences)]
    .filter(([, language]) => language === 'sh')
    .flatMap(([, , body = '']) => body.split('\n'))
    .map((line) => line.replace(/(^|\s)#\s.*$/, '').trim())
    .filter((line) => line !== '');
}

const programs = 'npm|npx|node|docker|curl|fleet-cutover';
const ours =
  'advance|agent|call|config|explain|export|fleet|host|ingress|prepare|required|scope|state|targets|verify|watch';

/** Command lines in the running text and in tables: a program, or a command of ours, with something behind it. */
export function inlineCommands(readme: string): string[] {
  const text = readme.replace(fences, '');
  const found = [...text.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code);
  return [...new Set(found.filter((code) => new RegExp(`^(?:(?:${programs}) \\S|(?:${ours}) [a-z-])`).test(code)))];
}

/** The first cells of the table whose head begins with this word; a cell may name several things. */
export function tableNames(readme: string, head: string): string[] {
  const lines = readme.split('\n');
  const start = lines.findIndex((line) => new RegExp(`^\\| ${head} `).test(line));
  if (start < 0) throw new Error(`the README has no table that begins with ${head}`);
  const names: string[] = [];
  for (const line of lines.slice(start + 2)) {
    if (!line.startsWith('|')) break;
    names.push(...[...(line.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, name = '']) => name));
  }
  return names;
}

/** Targets of its links, without those to other sites. */
export function localLinks(readme: string): string[] {
  return [...readme.replace(fences, '').matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^https?:/.test(target));
}
