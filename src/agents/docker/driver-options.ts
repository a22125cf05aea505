/**
 * A volume driver's options without what they could give away: `o=username=…,password=…` is where passwords of network
 * file systems stand, and a plugin's options may hold anything.
 */
import { bytesDigest } from '../../contract/digest.js';
import type { IReducedDriverOptions } from '../../contract/observation.js';
import { compareText } from '../../contract/schema.js';

/**
 * Option names that may be told, fewer than the contract's bound of 32: mount options which say how and where a volume
 * persists, and `size`. Only of these is known that the *name* is a name: a comma in a password makes the rest of it
 * look like one.
 */
export const reportedOptionNames: ReadonlySet<string> = new Set([
  'addr',
  'async',
  'bind',
  'gid',
  'hard',
  'local_lock',
  'lock',
  'mode',
  'nfsvers',
  'noatime',
  'nodev',
  'noexec',
  'nolock',
  'nosuid',
  'nr_inodes',
  'port',
  'proto',
  'rbind',
  'relatime',
  'retrans',
  'ro',
  'rsize',
  'rw',
  'sec',
  'size',
  'soft',
  'sync',
  'timeo',
  'uid',
  'vers',
  'wsize',
]);

/** What the contract's `type` and `bindDevice` may hold: nothing that Linux could mount is longer. */
const maximumTypeLength = 255;
const maximumDeviceLength = 4096;

/**
 * @param driver the volume's driver; null is the engine's default, `local`
 * @param options the raw options as the engine or the service spec has them
 * @returns the reduced options, or null where there are none
 */
export function reduceDriverOptions(
  driver: string | null,
  options: Readonly<Record<string, string>> | null | undefined,
): IReducedDriverOptions | null {
  const entries = Object.entries(options ?? {});
  if (entries.length === 0) return null;

  const local = driver === null || driver === 'local';
  const given = new Map(entries);
  const device = given.get('device') ?? '';
  const type = local ? (given.get('type') ?? '') : '';
  const mountOptions = (given.get('o') ?? '').split(',').filter((option) => option !== '');
  const mountOptionNames = mountOptions.map((option) => option.split('=', 1)[0] ?? '');
  const bind = local && (mountOptions.includes('bind') || mountOptions.includes('rbind'));

  const readApart = new Set(local ? ['type', 'device', 'o'] : ['device', 'o']);
  const names = [...entries.map(([name]) => name).filter((name) => !readApart.has(name)), ...mountOptionNames];
  return {
    type: type === '' || type.length > maximumTypeLength ? null : type,
    deviceDigest: device === '' ? null : bytesDigest(device),
    bindDevice: bind && device !== '' && device.length <= maximumDeviceLength ? device : null,
    optionNames: [...new Set(names.filter((name) => reportedOptionNames.has(name)))].sort(compareText),
    otherOptions: names.filter((name) => !reportedOptionNames.has(name)).length,
  };
}
