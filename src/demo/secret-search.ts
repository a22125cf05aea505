/** Looks for every secret of the demonstration in the private tables, the log, and everything that was shown. */
import { hashSecret } from '../features/auth/credential.js';
import { readKeyRing } from '../key-ring.js';
import { asOwner, type OpenedBearer, openedBearers, privateTables } from './private-rows.js';
import type { Stage } from './stage.js';

/**
 * The number of hits as the last line shows it; where they are has been said.
 *
 * Throws where the hash of the newest bearer is not found in the tables, where it has to be: then the search would miss a
 * bearer, too, or has opened another one.
 */
export async function searchSecrets({ canary, config, log, say }: Stage): Promise<string> {
  for (const { keyId, key } of await readKeyRing(config.keys)) canary.learn(`key ${keyId}`, key);
  return await asOwner(config, async (owner) => {
    const bearers = await openedBearers(owner, config);
    for (const { credentialId, generation, bearer } of bearers) {
      canary.learn(`bearer ${credentialId} generation ${generation}`, bearer);
    }
    const newestHash = hashOf(bearers.at(-1));
    const hits: string[] = [];
    let [tables, rows, hashFound] = [0, 0, false];
    for await (const { name, rowCount, text } of privateTables(owner)) {
      tables += 1;
      rows += rowCount;
      hashFound ||= text.includes(newestHash);
      hits.push(...canary.findIn(`table ${name}`, text));
    }
    if (!hashFound) throw new Error('the search does not find the hash of the newest bearer, which is there');
    const lines = log();
    for (const line of lines) hits.push(...canary.findIn('log', line));
    hits.push(...canary.findInShown());
    say(
      `${canary.secretCount} secrets, ${bearers.length} of them opened bearers, were looked for in ${rows} rows of ${tables} ` +
        `tables, ${lines.length} lines of the log and ${canary.shownCount} answers and lines: ${hits.length} hits.`,
    );
    for (const hit of hits) say(`  ${hit}`);
    return `${hits.length} hits`;
  });
}

function hashOf(newest: OpenedBearer | undefined): string {
  if (newest === undefined) throw new Error('no bearer is sealed');
  return hashSecret(newest.bearer).toString('hex');
}
