import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { IFleetCluster } from '../contract/fleet.js';
import type { CommandHost } from './command-host.js';
import { commandGroup, mutation, query } from './method-command.js';
import { type Column, fields, table } from './terminal-text.js';

const columns: readonly Column<IFleetCluster>[] = [
  ['cluster', (cluster) => cluster.clusterId],
  ['controller', (cluster) => cluster.controllerId],
  ['epoch', (cluster) => cluster.controllerEpoch],
  ['namespace', (cluster) => cluster.runtimeNamespace],
  ['swarm', (cluster) => cluster.swarmId],
];

function clusterLines(cluster: IFleetCluster): string[] {
  return fields([
    ['cluster', cluster.clusterId],
    ['organization', cluster.organizationId],
    ['controller', `${cluster.controllerId} epoch ${cluster.controllerEpoch}`],
    ['namespace', cluster.runtimeNamespace],
    ['swarm', cluster.swarmId ?? 'bound when the first inventory is admitted'],
  ]);
}

/** `cluster create|list|show` */
export function registerCluster(program: CommandUnknownOpts, host: CommandHost): void {
  const cluster = commandGroup(program, 'cluster', 'the organization’s clusters');
  mutation(
    host,
    cluster
      .command('create')
      .description('create a cluster, in phase swarm')
      .argument('<id>', 'the new cluster')
      .requiredOption('--controller <id>', 'who controls it')
      .requiredOption('--namespace <id>', 'namespace of its runtime'),
    'createCluster',
    {
      cluster: false,
      request: ({ args: [clusterId], options: { controller: controllerId, namespace: runtimeNamespace } }) => ({
        clusterId,
        controllerId,
        runtimeNamespace,
      }),
      lines: (answer) => clusterLines(answer.cluster),
    },
  );
  query(host, cluster.command('list').description('all clusters'), 'listClusters', {
    request: () => ({}),
    lines: ({ clusters }) => table(clusters, columns, 'no clusters'),
  });
  query(host, cluster.command('show').description('one cluster'), 'readCluster', {
    request: () => ({}),
    lines: (answer) => clusterLines(answer.cluster),
  });
}
