/**
 * `npm run bench`: prints what it does to stderr and the result to stdout; with `--json` its last line is one JSON object.
 * `--scale small` tells whether the benchmark itself works. `--only pageReads,observation` measures these parts alone.
 * `--cpu-prof DIRECTORY` leaves a profile of the service there.
 */
import { parseArgs } from 'node:util';
import { benchParts, runBench } from './bench.js';
import { fullScale, smallScale } from './scale.js';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    scale: { type: 'string', default: 'full' },
    only: { type: 'string', default: benchParts.join(',') },
    'cpu-prof': { type: 'string' },
  },
});
if (values.scale !== 'full' && values.scale !== 'small') throw new Error('--scale is full or small');
const asked = values.only.split(',');
const parts = new Set(benchParts.filter((part) => asked.includes(part)));
if (parts.size !== asked.length) throw new Error(`--only names some of ${benchParts.join(',')}, once each`);

const started = performance.now();
const say = (line: string) =>
  process.stderr.write(`[${((performance.now() - started) / 1000).toFixed(1)} s] ${line}\n`);
const profile = values['cpu-prof'];
const result = await runBench({
  scale: values.scale === 'full' ? fullScale : smallScale,
  parts,
  say,
  execArgv: profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`],
});
process.stdout.write(values.json ? `${JSON.stringify(result)}\n` : `${JSON.stringify(result, null, 2)}\n`);
