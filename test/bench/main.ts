/**
 * `npm run bench`: prints what it does to stderr and the result to stdout; with `--json` its last line is one JSON object.
 * `--scale small` tells whether the benchmark itself works. `--cpu-prof DIRECTORY` leaves a profile of the service there.
 */
import { parseArgs } from 'node:util';
import { runBench } from './bench.js';
import { fullScale, smallScale } from './scale.js';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    scale: { type: 'string', default: 'full' },
    'cpu-prof': { type: 'string' },
  },
});
if (values.scale !== 'full' && values.scale !== 'small') throw new Error('--scale is full or small');

const started = performance.now();
const say = (line: string) =>
  process.stderr.write(`[${((performance.now() - started) / 1000).toFixed(1)} s] ${line}\n`);
const profile = values['cpu-prof'];
const result = await runBench({
  scale: values.scale === 'full' ? fullScale : smallScale,
  say,
  execArgv: profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`],
});
process.stdout.write(values.json ? `${JSON.stringify(result)}\n` : `${JSON.stringify(result, null, 2)}\n`);
