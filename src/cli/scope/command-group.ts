import type { CommandUnknownOpts } from '@commander-js/extra-typings';

/** A command whose subcommands are registered by several files: found, or made by whoever comes first. */
export function commandGroup(program: CommandUnknownOpts, name: string, description: string): CommandUnknownOpts {
  return program.commands.find((command) => command.name() === name) ?? program.command(name).description(description);
}
