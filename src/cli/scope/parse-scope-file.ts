/** From the text of a scope file to its content, with the line of everything that is in it: pure. */
import { type ValueError, Value, ValueErrorType } from '@sinclair/typebox/value';
import { isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml';
import { mountClasses, serviceClasses } from '../../contract/scope.js';
import { UsageError } from '../output.js';
import { type IScopeFile, ScopeFile } from './scope-file.js';
import { type ScopeFileError, ScopeFileRefused } from './scope-file-refused.js';

export interface ParsedScopeFile {
  readonly file: IScopeFile;
  /** Of the JSON pointer, or of the nearest thing around it. */
  lineOf(pointer: string): number;
}

/** Nothing longer can be sent. */
export const maximumScopeFileBytes = 8_388_608;

/** Throws {@link ScopeFileRefused}; `path` names the file in it. */
export function parseScopeFile(bytes: Uint8Array, path: string): ParsedScopeFile {
  if (bytes.byteLength > maximumScopeFileBytes)
    throw new UsageError(`${path} has ${bytes.byteLength} bytes, over ${maximumScopeFileBytes}`);
  const counter = new LineCounter();
  const lines = new Map<string, number>();
  const errors: ScopeFileError[] = [];
  let value: unknown;
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    // Not `silent`, which takes the first of several documents without a word.
    const document = parseDocument(text, {
      lineCounter: counter,
      prettyErrors: false,
      stringKeys: true,
      logLevel: 'error',
    });
    for (const { pos, message } of [...document.errors, ...document.warnings])
      errors.push({ line: counter.linePos(pos[0]).line, message });
    if (errors.length === 0) value = new Reader(counter, lines, errors).read(document.contents, '');
  } catch (error) {
    if (!(error instanceof TypeError) && !(error instanceof RangeError)) throw error;
    errors.push({ line: 1, message: error instanceof TypeError ? 'it is not UTF-8' : 'it is nested too deeply' });
  }
  if (errors.length > 0) throw new ScopeFileRefused(path, errors);
  const lineOf = (pointer: string): number => {
    for (let at = pointer; at !== ''; at = at.slice(0, at.lastIndexOf('/'))) {
      const line = lines.get(at);
      if (line !== undefined) return line;
    }
    return 1;
  };
  const found = schemaErrors(value).map(({ path: pointer, message }) => ({ line: lineOf(pointer), message }));
  if (found.length > 0) throw new ScopeFileRefused(path, found);
  return { file: value as IScopeFile, lineOf };
}

/** Plain values only: an alias or a tag would say something that the line itself does not show. */
class Reader {
  readonly #counter: LineCounter;
  readonly #lines: Map<string, number>;
  readonly #errors: ScopeFileError[];

  constructor(counter: LineCounter, lines: Map<string, number>, errors: ScopeFileError[]) {
    this.#counter = counter;
    this.#lines = lines;
    this.#errors = errors;
  }

  read(node: Node | null, pointer: string): unknown {
    if (node === null) return null;
    const line = this.#counter.linePos(node.range?.[0] ?? 0).line;
    if (!this.#lines.has(pointer)) this.#lines.set(pointer, line);
    if (isAlias(node)) return this.#refuse(line, 'an alias is not taken: write the value itself');
    if ('anchor' in node && node.anchor !== undefined) return this.#refuse(line, 'an anchor is not taken');
    if (node.tag !== undefined) return this.#refuse(line, `the tag ${node.tag} is not taken`);
    if (isSeq(node)) return node.items.map((item, index) => this.read(item as Node | null, `${pointer}/${index}`));
    if (isMap(node)) {
      const entries: [string, unknown][] = [];
      for (const { key, value } of node.items) {
        const name = isScalar(key) ? String(key.value) : '';
        const at = `${pointer}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
        const keyLine = isScalar(key) ? this.#counter.linePos(key.range?.[0] ?? 0).line : line;
        if (name === '__proto__') this.#refuse(keyLine, 'the key __proto__ is not taken');
        this.#lines.set(at, keyLine);
        entries.push([name, this.read(value as Node | null, at)]);
      }
      return Object.fromEntries(entries.filter(([name]) => name !== '__proto__'));
    }
    return isScalar(node) ? node.value : null;
  }

  #refuse(line: number, message: string): null {
    this.#errors.push({ line, message });
    return null;
  }
}

function schemaErrors(value: unknown): { path: string; message: string }[] {
  const errors: { path: string; message: string }[] = [];
  const seen = new Set<string>();
  for (const error of Value.Errors(ScopeFile, value)) {
    // A missing member is told once, as missing; its wrong type adds nothing.
    if (seen.has(error.path)) continue;
    seen.add(error.path);
    errors.push({ path: error.path, message: schemaMessage(error) });
    if (errors.length >= 1_000) break;
  }
  return errors;
}

const choices: readonly (readonly [RegExp, string])[] = [
  [/^\/services\/\d+\/class$/, `has to be one of ${serviceClasses.join(', ')}`],
  [/^\/services\/\d+\/mounts\/\d+\/class$/, `has to be one of ${mountClasses.join(', ')}`],
  [/\/confirmed$/, 'has to be true or false'],
  [/\/reason$/, 'has to be a text of at most 512 characters (quote what looks like a number)'],
  [/^\/coreflow$/, 'has to be { state: undetermined }, { state: classified } or { state: none, reason: … }'],
  [/\/(?:swarmServiceId|serviceId|nodeId|clusterId)$/, 'has to be an identifier (quote what looks like a number)'],
  [/\/mounter$/, 'has to be { kind: service, swarmServiceId: … } or { kind: container, name: … }'],
];

function schemaMessage({ path, type, message }: ValueError): string {
  const name = path === '' ? 'the file' : path.slice(path.lastIndexOf('/') + 1);
  if (type === ValueErrorType.ObjectAdditionalProperties) return `${name} is not a key that is known here`;
  if (type === ValueErrorType.ObjectRequiredProperty) return `${name} is missing`;
  const choice = choices.find(([pattern]) => pattern.test(path));
  return choice === undefined ? `${name}: ${message.toLowerCase()}` : `${name} ${choice[1]}`;
}
