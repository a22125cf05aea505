import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { parseServiceUrl } from '../client/service-url.js';
import { type CommandHost, guarded } from './command-host.js';
import { addConnectionOptions, clusterOption } from './connection-options.js';
import { commandGroup } from './method-command.js';
import { jsonOutputOption, printResult } from './output.js';
import { readSettings, type Setting, type Settings } from './settings.js';
import { fields } from './terminal-text.js';

/** `config show`: each setting and where it came from. Of a token only where it is, never the token. */
export function registerConfig(program: CommandUnknownOpts, host: CommandHost): void {
  const config = commandGroup(program, 'config', 'where the service is, and who calls it');
  const command = config
    .command('show')
    .description('each setting and where it came from: option, else environment, else file')
    .addOption(clusterOption())
    .addOption(jsonOutputOption());
  addConnectionOptions(command).action((options) =>
    guarded(host, options.json === true, async () => {
      const settings = await readSettings(options, host.environment);
      // A URL with a password in it is refused, and not shown.
      if (settings.url !== null) parseServiceUrl(settings.url.value, { allowPlainHttp: true });
      const shown = shownSettings(settings);
      printResult(host, shown, options.json === true, () => [
        ...fields([['file', shown.file ?? 'none']]),
        ...fields(Object.entries(shown.settings).map(([name, setting]) => [name, settingText(setting)] as const)),
      ]);
    }),
  );
}

type Shown = Setting<string | boolean | null> | null;

function shownSettings(settings: Settings): { file: string | null; settings: Record<string, Shown> } {
  const { file, url, tokenFile, caFile, allowPlainHttp, cluster, tokenVariable } = settings;
  const token: Shown = tokenVariable === null ? null : { value: null, from: `environment ${tokenVariable}` };
  return { file, settings: { url, token, tokenFile, caFile, allowPlainHttp, cluster } };
}

function settingText(setting: Shown): string {
  if (setting === null) return 'not set';
  return `${setting.value === null ? 'set, not shown' : String(setting.value)}  (${setting.from})`;
}
