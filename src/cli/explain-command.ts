import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { MethodRequest, MethodResponse } from '../contract/methods.js';
import type { CommandHost } from './command-host.js';
import { gateLines } from './gate-lines.js';
import { parseHandoff } from './handoff-argument.js';
import { query } from './method-command.js';

type Subject = MethodRequest<'explainFleetCutover'>['subject'];
type Explanation = MethodResponse<'explainFleetCutover'>;

/** `explain [--node ID | --service ID | --handoff NODE/ID]` */
export function registerExplain(program: CommandUnknownOpts, host: CommandHost): void {
  const command = program
    .command('explain')
    .description('why the phase does not advance: what is missing, on what evidence, and who acts next')
    .addOption(new Option('--node <id>', 'about one node only').conflicts(['service', 'handoff']))
    .addOption(new Option('--service <id>', 'about one service only').conflicts(['node', 'handoff']))
    .addOption(
      new Option('--handoff <node/id>', 'about one handoff only')
        .conflicts(['node', 'service'])
        .argParser((text): Subject => ({ kind: 'handoff', ...parseHandoff(text) })),
    );
  query(host, command, 'explainFleetCutover', {
    request: ({ options }) => ({ subject: subjectOf(options) }),
    lines: (explanation, options) => explanationLines(explanation, subjectOf(options)),
  });
}

function subjectOf(options: {
  readonly node?: string | undefined;
  readonly service?: string | undefined;
  readonly handoff?: Subject | undefined;
}): Subject {
  if (options.handoff !== undefined) return options.handoff;
  if (options.node !== undefined) return { kind: 'node', nodeId: options.node };
  if (options.service !== undefined) return { kind: 'service', serviceId: options.service };
  return { kind: 'cluster' };
}

function explanationLines(explanation: Explanation, subject: Subject): string[] {
  const { runtime, next, gates, coverage } = explanation;
  const unmet = gates.filter((gate) => !gate.met).length;
  const where = `phase ${runtime.phase} (generation ${runtime.generation})`;
  return [
    next === null ? `${where}: the last one` : `${where}; next: ${next}, ${verdictOn(subject, gates.length, unmet)}`,
    ...gateLines(gates),
    ...coverageLines(coverage),
    ...section('blockers', explanation.blockers, (blocker) => {
      const about = [blocker.nodeId, blocker.swarmServiceId, blocker.containerName, blocker.target, blocker.volumeName];
      return `${blocker.code}: ${blocker.detail} [${about.filter((each) => each !== null).join(' ')}]`;
    }),
    ...section('required volumes', explanation.entries, (entry) => {
      const blocked = entry.blockers.length === 0 ? '' : `, blocked: ${entry.blockers.join(', ')}`;
      const held = entry.handoff === null ? '' : ` (generation ${entry.handoff.generation})`;
      return `${entry.nodeId}/${entry.id} ${entry.serviceName} ${entry.mountPath}: ${entry.state}${held}${blocked}`;
    }),
    ...section(
      subject.kind === 'cluster' ? 'tasks that cannot be judged' : 'tasks',
      explanation.verdicts,
      (task) =>
        `${task.swarmTaskId} of service ${task.swarmServiceId} on ${task.nodeId ?? 'no node'}: ${task.verdict} (${task.reason})`,
    ),
    ...section('write-offs', explanation.writeOffs, ({ state, subject: lost, proposedBy, confirmedBy, reason }) => {
      const what = lost.kind === 'node' ? `node ${lost.nodeId}` : `a volume of node ${lost.nodeId}`;
      return `${what}: ${state} by ${confirmedBy === null ? proposedBy : `${proposedBy} and ${confirmedBy}`}: ${reason}`;
    }),
  ];
}

function verdictOn(subject: Subject, count: number, unmet: number): string {
  if (subject.kind !== 'cluster')
    return count === 0 ? 'no gate waits for this' : `${unmet} gates wait for this (met ones are not shown)`;
  return unmet === 0 ? `all ${count} gates are met` : `${unmet} of ${count} gates are not met`;
}

function coverageLines({
  total,
  covered,
  remaining,
  completeNodes,
  targetNodes,
  coveredLastMinute,
}: Explanation['coverage']): string[] {
  if (total === 0) return [];
  const rate = remaining === 0 ? '' : `; ${remaining} reports remain, ${coveredLastMinute} came within the last minute`;
  return [`coverage: ${covered} of ${total} pages, ${completeNodes} of ${targetNodes} nodes complete${rate}`];
}

/** The service shows the first hundred. */
const shown = 100;

function section<T>(title: string, items: readonly T[], line: (item: T) => string): string[] {
  if (items.length === 0) return [];
  return [
    `${title}:`,
    ...items.map((item) => `  ${line(item)}`),
    ...(items.length === shown ? ['  … the first hundred'] : []),
  ];
}
