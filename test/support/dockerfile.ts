/** What a Dockerfile says, as far as ours goes: one instruction a line, none continued. */
export interface Instruction {
  readonly name: string;
  readonly text: string;
  readonly words: readonly string[];
}

/** The instructions of every stage, each beginning with its `FROM`. */
export function readStages(dockerfile: string): Instruction[][] {
  const stages: Instruction[][] = [];
  for (const line of dockerfile.split('\n')) {
    if (line.trim() === '' || line.startsWith('#')) continue;
    const [name = '', ...words] = line.split(/\s+/);
    if (!/^[A-Z]+$/.test(name) || line.endsWith('\\')) throw new Error(`not understood: ${line}`);
    if (name === 'FROM') stages.push([]);
    stages.at(-1)?.push({ name, text: line.slice(name.length).trim(), words });
  }
  return stages;
}
