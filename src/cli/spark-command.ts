import { join } from 'node:path';
import { type CommandUnknownOpts, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import type { DockerSource } from '../agents/docker/source.js';
import type { SparkEvent } from '../agents/spark/log.js';
import { type CommandHost, guarded } from './command-host.js';
import { addServiceOptions, tokenFromFile, transportOptions } from './connection-options.js';
import { jsonOutputOption, UsageError } from './output.js';
import { jsonText, printable } from './terminal-text.js';
import { untilSignalled } from './until-signalled.js';

/** `agent spark --node ID --token-file FILE (--docker SOCKET | --capture DIR)` */
export function registerSpark(program: CommandUnknownOpts, host: CommandHost): void {
  const agent = program.command('agent').description('reference agents');
  const command = agent
    .command('spark')
    .description('report what Docker has and read the node’s prepared handoffs')
    .requiredOption('--node <id>', 'the node')
    .requiredOption('--token-file <file>', 'file with the node’s Spark token')
    .addOption(new Option('--docker <socket>', 'socket of the engine').conflicts('capture'))
    .option('--capture <dir>', 'directory with captured answers of an engine instead')
    .option('--state-dir <dir>', 'what the agent keeps (default: .data/spark/<node>)')
    .option('--pallet-dir <dir>', 'keep held fences there, as the node’s reference Pallet (default: no Pallet)')
    .option('--unit-file <file>', 'unit of the service manager that starts this agent')
    .addOption(
      new Option('--interval <seconds>', 'mean time between two rounds').default(30).argParser((text) => {
        if (/^[1-9]\d{0,4}$/.test(text)) return Number(text);
        throw new InvalidArgumentError('Whole seconds.');
      }),
    )
    .option('--once', 'one round, then end')
    .addOption(jsonOutputOption());
  addServiceOptions(command).action((options) =>
    guarded(host, options.json === true, async () => {
      const settings = {
        nodeId: options.node,
        nodeToken: await tokenFromFile(options.tokenFile),
        transport: await transportOptions(options, host.environment),
        source: await dockerSource(options),
        stateDirectory: options.stateDir ?? join('.data', 'spark', options.node),
        palletDirectory: options.palletDir ?? null,
        once: options.once === true,
        intervalMs: options.interval * 1000,
        unitFile: options.unitFile ?? null,
      };
      const log = (event: SparkEvent) => host.stderr(`${eventText(event, options.json === true)}\n`);
      const { startSpark } = await import('../agents/spark/start.js');
      await untilSignalled((signal) => startSpark(settings, log, signal));
    }),
  );
}

async function dockerSource(options: {
  docker?: string | undefined;
  capture?: string | undefined;
}): Promise<DockerSource> {
  if (options.capture !== undefined) {
    const { capturedSource } = await import('../agents/docker/captured-source.js');
    return capturedSource(options.capture);
  }
  if (options.docker === undefined) throw new UsageError('give --docker SOCKET or --capture DIR');
  const { engineSource } = await import('../agents/docker/engine-source.js');
  return engineSource({ socketPath: options.docker });
}

function eventText(event: SparkEvent, asJson: boolean): string {
  if (asJson) return jsonText(event);
  const { level, event: name, ...details } = event;
  return printable(
    [level, name, ...Object.entries(details).map(([key, value]) => `${key}=${String(value)}`)].join(' '),
  );
}
