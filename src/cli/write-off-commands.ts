/**
 * `write-off node NODE`, `write-off volume NODE/ID`: break-glass, two administrators in two steps. The second one confirms
 * exactly the proposal that they have read, and says what they verified themselves.
 */
import { type Command, type CommandUnknownOpts, Option, type OptionValues } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import type { IFleetCutoverWriteOff } from '../contract/write-off.js';
import type { CommandHost } from './command-host.js';
import { parseHandoff } from './handoff-argument.js';
import { commandGroup, mutation } from './method-command.js';
import { UsageError } from './output.js';
import { parseReference, referenceArgument, referenceText, type WrittenReference } from './reference-text.js';
import { fields } from './terminal-text.js';

function addStatement<A extends unknown[], O extends OptionValues>(command: Command<A, O>) {
  return command
    .option('--reason <text>', 'why it is lost; whoever confirms keeps the proposal’s')
    .requiredOption('--verified <text>', 'what you have verified, and how')
    .addOption(
      new Option(
        '--confirm <reference>',
        'confirm this proposal of another administrator, as GENERATION:DIGEST',
      ).argParser((text): WrittenReference => {
        const reference = parseReference(text);
        if (reference === undefined || reference === null)
          throw new UsageError('--confirm has to be the proposal’s GENERATION:DIGEST');
        return reference;
      }),
    );
}

interface Statement {
  readonly reason?: string | undefined;
  readonly verified: string;
  readonly confirm?: WrittenReference | undefined;
}

/** What the request states: a proposal, or the confirmation of one. Throws UsageError. */
async function stated(
  client: AdministratorClient,
  clusterId: string,
  { reason, verified, confirm }: Statement,
  isIt: (subject: IFleetCutoverWriteOff['subject']) => boolean,
) {
  if (confirm === undefined) {
    if (reason === undefined) throw new UsageError('give --reason, or --confirm a proposal');
    return { reason, verified, proposal: null };
  }
  const { writeOffs } = await client.explainFleetCutover({ clusterId, subject: { kind: 'cluster' } });
  const proposal = writeOffs.find(({ subject }) => isIt(subject));
  if (proposal === undefined) throw new UsageError('there is no proposal to confirm');
  return {
    reason: reason ?? proposal.reason,
    verified,
    proposal: { id: confirm.id ?? proposal.id, generation: confirm.generation, digest: confirm.digest },
  };
}

function writeOffLines(writeOff: IFleetCutoverWriteOff, words: string): string[] {
  const { state, reason, verified, proposedBy, confirmedBy } = writeOff;
  return [
    ...fields([
      ['write-off', referenceText(writeOff)],
      ['state', confirmedBy === null ? `${state} by ${proposedBy}` : `${state} by ${proposedBy} and ${confirmedBy}`],
      ['reason', reason],
      ['verified', verified],
    ]),
    ...(state === 'proposed'
      ? [`another administrator confirms it: ${words} --confirm ${referenceArgument(writeOff)} --verified …`]
      : []),
  ];
}

export function registerWriteOff(program: CommandUnknownOpts, host: CommandHost): void {
  const writeOff = commandGroup(program, 'write-off', 'declare a node or volume lost for good, by two administrators');
  mutation(
    host,
    addStatement(writeOff.command('node').description('a destroyed node').argument('<node>', 'the node')),
    'writeOffNode',
    {
      request: async ({ args: [nodeId], options, client, clusterId }) => ({
        nodeId,
        ...(await stated(
          client,
          clusterId,
          options,
          (subject) => subject.kind === 'node' && subject.nodeId === nodeId,
        )),
      }),
      lines: (answer) => writeOffLines(answer.writeOff, 'write-off node'),
    },
  );
  mutation(
    host,
    addStatement(
      writeOff
        .command('volume')
        .description('a lost volume')
        .argument('<node/id>', 'its required entry, as `explain --node` shows it', parseHandoff),
    ),
    'writeOffVolume',
    {
      request: async ({ args: [{ nodeId, id }], options, client, clusterId }) => {
        const { entries } = await client.explainFleetCutover({ clusterId, subject: { kind: 'handoff', nodeId, id } });
        const [entry] = entries;
        if (entry === undefined) throw new UsageError(`there is no required entry ${nodeId}/${id}`);
        const { serviceId, mountIdentityDigest } = entry;
        const isIt = (subject: IFleetCutoverWriteOff['subject']) =>
          subject.kind === 'volume' &&
          subject.nodeId === nodeId &&
          subject.serviceId === serviceId &&
          subject.mountIdentityDigest === mountIdentityDigest;
        return { nodeId, serviceId, mountIdentityDigest, ...(await stated(client, clusterId, options, isIt)) };
      },
      lines: (answer) => writeOffLines(answer.writeOff, 'write-off volume'),
    },
  );
}
