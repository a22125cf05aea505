/** Scope and targets: what an administrator has said about the inventory. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { IFleetCutoverScope } from '../contract/scope.js';
import type { CommandHost } from './command-host.js';
import { commandGroup, mutation, query } from './method-command.js';
import { referenceText } from './reference-text.js';
import { fields, table } from './terminal-text.js';

function scopeLines(scope: IFleetCutoverScope): string[] {
  const { coreflow, unclassified } = scope;
  const further: readonly (readonly [string, number])[] = [
    ['overlap owners', scope.overlapOwners.length],
    ['overlaps confirmed', scope.overlapConfirmations.length],
    ['dormant volumes', scope.dormantVolumes.length],
    ['released entries', scope.releasedEntries.length],
    ['released anonymous', scope.releasedAnonymousVolumes.length],
  ];
  return [
    ...fields([
      ['scope', `${referenceText(scope)}, ${scope.state}`],
      ['inventory', referenceText(scope.inventory)],
      ['coreflow', coreflow.state === 'none' ? `none: ${coreflow.reason}` : coreflow.state],
      ['unclassified', unclassified.length === 0 ? 'none' : unclassified.join(' ')],
      ...further.filter(([, count]) => count > 0),
    ]),
    '',
    ...table(
      scope.services,
      [
        ['swarm service', (service) => service.swarmServiceId],
        ['class', (service) => service.class],
        ['owner', (service) => service.serviceId],
        ['mounts', (service) => service.mounts.map((mount) => `${mount.target} ${mount.class}`).join(', ') || null],
        ['reason', (service) => service.reason],
      ],
      'no service is classified',
    ),
  ];
}

/** Of `scope`, whose commands stand in several files. */
export const scopeGroup = 'the classes of the admitted inventory';

/** `scope show` */
export function registerScope(program: CommandUnknownOpts, host: CommandHost): void {
  const scope = commandGroup(program, 'scope', scopeGroup);
  query(host, scope.command('show').description('the current scope'), 'readFleetCutoverScope', {
    request: () => ({ scope: null }),
    lines: (answer) => scopeLines(answer.scope),
  });
}

/** `targets accept|show` */
export function registerTargets(program: CommandUnknownOpts, host: CommandHost): void {
  const targets = commandGroup(program, 'targets', 'the nodes that will run Pallet');
  mutation(
    host,
    targets.command('accept').description('name all of them').argument('<node...>', 'the nodes'),
    'acceptFleetCutoverTargetSet',
    {
      request: ({ args: [nodeIds] }) => ({ nodeIds }),
      lines: ({ targetSet, blockers }) =>
        fields([
          ['targets', referenceText(targetSet)],
          ['nodes', targetSet.nodeIds.length],
          ['blockers', blockers.map(({ code, count }) => `${count} ${code}`).join(', ') || 'none'],
        ]),
    },
  );
  query(host, targets.command('show').description('the current targets'), 'readFleetCutoverTargetSet', {
    request: () => ({ targetSet: null }),
    lines: ({ targetSet }) => [
      ...fields([['targets', referenceText(targetSet)]]),
      ...table(targetSet.nodeIds, [['node', (nodeId) => nodeId]]),
    ],
  });
}
