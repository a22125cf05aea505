/** Gates of a phase for people. */
import type { IFleetCutoverGate } from '../contract/gate.js';

/** One line per gate, and under one that is unmet what is missing, and on what evidence. */
export function gateLines(gates: readonly IFleetCutoverGate[]): string[] {
  const width = Math.max(0, ...gates.map((gate) => gate.code.length)) + 2;
  return gates.flatMap((gate) => [
    `  ${gate.met ? 'met  ' : 'UNMET'}  ${gate.code.padEnd(width)}${gate.met ? '' : `${gate.missingCount} missing; ${who(gate)}`}`.trimEnd(),
    ...(gate.met ? [] : missingLines(gate)),
  ]);
}

function who({ acts }: IFleetCutoverGate): string {
  return acts === 'nobody' ? 'nobody has to act' : `${acts} acts next`;
}

function missingLines({ missing, missingCount, evidence }: IFleetCutoverGate): string[] {
  const unlisted = missingCount - missing.length;
  return [
    ...missing.map(({ nodeId, swarmServiceId, detail }) => {
      const where = [
        ...(nodeId === null ? [] : [`node ${nodeId}`]),
        ...(swarmServiceId === null ? [] : [`service ${swarmServiceId}`]),
      ];
      return `           - ${detail}${where.length === 0 ? '' : ` [${where.join(', ')}]`}`;
    }),
    ...(unlisted > 0 ? [`           - … and ${unlisted} more`] : []),
    ...evidence.map(
      ({ reference, ageMs }) =>
        `           evidence: ${reference.id} generation ${reference.generation}${ageMs === null ? '' : `, seen ${ageText(ageMs)} ago`}`,
    ),
  ];
}

/** Whole units, the largest that there is at least one of. */
export function ageText(ms: number): string {
  const units: readonly (readonly [number, string])[] = [
    [86_400_000, 'd'],
    [3_600_000, 'h'],
    [60_000, 'min'],
    [1000, 's'],
  ];
  const [size, name] = units.find(([each]) => ms >= each) ?? [1, 'ms'];
  return `${Math.floor(ms / size)} ${name}`;
}
