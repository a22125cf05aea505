import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { IFleetNode } from '../contract/fleet.js';
import type { CommandHost } from './command-host.js';
import { issuedCredentialLines, issuedLines } from './credential-commands.js';
import { ageText } from './gate-lines.js';
import { commandGroup, list, mutation } from './method-command.js';
import { referenceText } from './reference-text.js';
import { fields } from './terminal-text.js';

function nodeLines(node: IFleetNode): string[] {
  const { quarantineReason, reportedSwarmNodeId } = node;
  return fields([
    ['node', node.nodeId],
    ['state', quarantineReason === null ? node.state : `${node.state}: ${quarantineReason}`],
    ['swarm node', node.swarmNodeId ?? 'none yet'],
    ...(reportedSwarmNodeId === null ? [] : [['reports as', `${reportedSwarmNodeId}, to be confirmed`] as const]),
    ['spark token', `generation ${node.tokenGeneration}`],
    ['session', `credential generation ${node.sessionCredentialGeneration}`],
    ['corestore key', node.corestorePublicKey ?? 'none'],
    ['last report', reportText(node)],
    ['snapshot', referenceText(node.localSnapshot)],
  ]);
}

function reportText({ lastReport, localSnapshotIncomplete }: IFleetNode): string {
  if (lastReport === null) return 'never';
  // For people only: the service's clock against this machine's.
  const age = ageText(Math.max(0, Date.now() - lastReport.receivedAt));
  return `${lastReport.state}, ${age} ago${localSnapshotIncomplete === null ? '' : `, incomplete: ${localSnapshotIncomplete}`}`;
}

const needed = (node: IFleetNode): string => {
  if (node.quarantineReason !== null) return node.quarantineReason;
  return node.reportedSwarmNodeId === null ? '' : `reports as ${node.reportedSwarmNodeId}: confirm-rejoin`;
};

/** `node list|register|rotate-credential|revoke|release-quarantine|confirm-rejoin|set-corestore-key` */
export function registerNode(program: CommandUnknownOpts, host: CommandHost): void {
  const node = commandGroup(program, 'node', 'nodes of a cluster and their credentials');
  const about = (name: string, description: string) =>
    node.command(name).description(description).argument('<node>', 'the node');
  list(host, node.command('list').description('nodes with their latest report'), 'listNodes', {
    items: 'nodes',
    columns: [
      ['node', (each) => each.nodeId],
      ['state', (each) => each.state],
      ['swarm node', (each) => each.swarmNodeId],
      ['last report', reportText],
      ['snapshot', (each) => each.localSnapshot && `generation ${each.localSnapshot.generation}`],
      ['needs', needed],
    ],
  });
  mutation(
    host,
    about('register', 'register a node, and issue its Spark token and session credential').option(
      '--corestore-key <hex>',
      'Ed25519 public key with which its Corestore signs',
    ),
    'registerNode',
    {
      request: ({ args: [nodeId], options }) => ({ nodeId, corestorePublicKey: options.corestoreKey ?? null }),
      lines: (answer, { secretsFile }) => [...nodeLines(answer.node), ...issuedLines(answer.secrets, secretsFile)],
    },
  );
  mutation(
    host,
    about(
      'rotate-credential',
      'issue the next generation; the last used one works until the new one is used',
    ).addOption(
      new Option('--kind <kind>', 'Spark’s token or Pallet’s session credential')
        .choices(['node-token', 'node-session'] as const)
        .makeOptionMandatory(true),
    ),
    'rotateNodeCredential',
    {
      request: ({ args: [nodeId], options: { kind } }) => ({ nodeId, kind }),
      lines: issuedCredentialLines,
    },
  );
  mutation(host, about('revoke', 'end all its credentials and sessions at once'), 'revokeNode', {
    request: ({ args: [nodeId] }) => ({ nodeId }),
    lines: (answer) => nodeLines(answer.node),
  });
  mutation(host, about('release-quarantine', 'release it, with new credentials'), 'releaseNodeQuarantine', {
    request: ({ args: [nodeId] }) => ({ nodeId }),
    lines: (answer, { secretsFile }) => [...nodeLines(answer.node), ...issuedLines(answer.secrets, secretsFile)],
  });
  mutation(
    host,
    about('confirm-rejoin', 'bind it to the new swarm node id that it reports').requiredOption(
      '--swarm-node <id>',
      'the id that it reports, as `node list` shows it',
    ),
    'confirmNodeRejoin',
    {
      request: ({ args: [nodeId], options: { swarmNode: swarmNodeId } }) => ({ nodeId, swarmNodeId }),
      lines: (answer) => nodeLines(answer.node),
    },
  );
  mutation(
    host,
    about('set-corestore-key', 'set the key with which its Corestore signs').requiredOption(
      '--key <hex>',
      'Ed25519 public key, 64 hex digits',
    ),
    'setCorestorePublicKey',
    {
      request: ({ args: [nodeId], options: { key: corestorePublicKey } }) => ({ nodeId, corestorePublicKey }),
      lines: (answer) => nodeLines(answer.node),
    },
  );
}
