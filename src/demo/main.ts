/** `npm run demo [-- --capture DIR]`: the story on standard output, one JSON object as its last line. */
import { join } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { runDemo } from './demo.js';

const ourCapture = join(import.meta.dirname, '..', '..', 'test', 'fixtures', 'swarm');

const { capture } = new Command('demo')
  .description('the main job on a captured Swarm, with everything started and ended here')
  .option('--capture <dir>', 'a directory with one directory of engine answers per node', ourCapture)
  .parse()
  .opts();

const result = await runDemo(capture, (line) => process.stdout.write(`${line}\n`));
if (result.state !== 'complete') {
  process.stdout.write('The set is incomplete: see the blockers above.\n');
  process.exitCode = 1;
}
process.stdout.write(`${JSON.stringify(result)}\n`);
