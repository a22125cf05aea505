/** `npm run demo [-- --capture DIR]`: the story on standard output, one JSON object as its last line. */
import { join } from 'node:path';
import { Command } from '@commander-js/extra-typings';
import { runDemo } from './demo.js';

const ourCapture = join(import.meta.dirname, '..', '..', 'test', 'fixtures', 'swarm');

const { capture } = new Command('demo')
  .description('the main job on a captured Swarm, with everything started and ended here')
  .option(
    '--capture <dir>',
    'a directory with one directory of engine answers per node (default: the repository’s own)',
  )
  .parse()
  .opts();

const result = await runDemo({
  captureDirectory: capture ?? ourCapture,
  // Somebody else's fleet is shown as it was captured.
  addRelayAndIngress: capture === undefined,
  say: (line) => process.stdout.write(`${line}\n`),
});
if (result.phase !== 'pallet') {
  process.stdout.write(
    result.state === 'complete'
      ? `The set is complete and the phase is ${result.phase}: see the gates above.\n`
      : 'The set is incomplete: see the blockers above.\n',
  );
  process.exitCode = 1;
} else if (result.secretCanary !== '0 hits' || result.lostAnswerReplayed !== true) {
  process.stdout.write('A secret was found where none belongs, or a lost answer was not replayed: see above.\n');
  process.exitCode = 1;
}
process.stdout.write(`${JSON.stringify(result)}\n`);
