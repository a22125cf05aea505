/** What was reported, and what follows from it: inventory, tasks, blockers, volumes that nothing covers. */
import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import { taskVerdicts } from '../contract/derivation.js';
import type { MethodResponse } from '../contract/methods.js';
import type { CommandHost } from './command-host.js';
import { commandGroup, list, query } from './method-command.js';
import { referenceText } from './reference-text.js';
import { fields, table } from './terminal-text.js';

type Inventory = MethodResponse<'readFleetCutoverManagerSnapshot'>;

function inventoryLines({ reference, snapshot }: Inventory): string[] {
  if (!snapshot.complete) return fields([['inventory', `${referenceText(reference)}, incomplete: ${snapshot.reason}`]]);
  const tasksOf = (serviceId: string) => snapshot.tasks.filter((task) => task.serviceId === serviceId).length;
  return [
    ...fields([
      ['inventory', referenceText(reference)],
      ['swarm', snapshot.swarmId],
      ['tasks', snapshot.tasks.length],
    ]),
    '',
    ...table(snapshot.nodes, [
      ['swarm node', (node) => node.id],
      ['hostname', (node) => node.hostname],
      ['role', (node) => node.role],
      ['availability', (node) => node.availability],
      ['state', (node) => node.state],
    ]),
    '',
    ...table(snapshot.services, [
      ['swarm service', (service) => service.id],
      ['name', (service) => service.name],
      ['mode', (service) => service.mode],
      ['replicas', (service) => service.replicas],
      ['tasks', (service) => tasksOf(service.id)],
      ['mounts', (service) => service.mounts.length],
      ['image', (service) => service.image],
    ]),
  ];
}

/** `inventory show`, `tasks`, `blockers`, `uncovered` */
export function registerEvidence(program: CommandUnknownOpts, host: CommandHost): void {
  const inventory = commandGroup(program, 'inventory', 'what the managers report of the swarm');
  query(
    host,
    inventory.command('show').description('the latest accepted snapshot of a manager'),
    'readFleetCutoverManagerSnapshot',
    { request: () => ({ snapshot: null }), lines: inventoryLines },
  );
  list(
    host,
    program
      .command('tasks')
      .description('verdicts of the swarm’s tasks')
      .addOption(new Option('--verdict <verdict>', 'these only').choices(taskVerdicts)),
    'listFleetCutoverTaskVerdicts',
    {
      items: 'verdicts',
      request: ({ options }) => ({ verdict: options.verdict ?? null }),
      columns: [
        ['task', (task) => task.swarmTaskId],
        ['swarm service', (task) => task.swarmServiceId],
        ['node', (task) => task.nodeId],
        ['verdict', (task) => task.verdict],
        ['reason', (task) => task.reason],
      ],
    },
  );
  list(
    host,
    program.command('blockers').description('what keeps the required set from being complete, and why'),
    'listFleetCutoverBlockers',
    {
      items: 'blockers',
      columns: [
        ['blocker', (blocker) => blocker.code],
        ['node', (blocker) => blocker.nodeId],
        ['about', (blocker) => blocker.containerName ?? blocker.volumeName ?? blocker.swarmServiceId],
        ['target', (blocker) => blocker.target],
        ['reason', (blocker) => blocker.detail],
      ],
    },
  );
  list(
    host,
    program.command('uncovered').description('volumes that no required entry covers'),
    'listFleetCutoverUncoveredVolumes',
    {
      items: 'volumes',
      columns: [
        ['node', (volume) => volume.nodeId],
        ['volume', (volume) => volume.volumeName],
        ['driver', (volume) => volume.driver],
        ['kind', (volume) => volume.kind],
      ],
    },
  );
}
