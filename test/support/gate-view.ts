/** What operators see of the gates, beside what the program says of them. */
import type { TestService } from './service.js';

interface Side {
  readonly gate: string;
  readonly missing: number | null;
}

/** Gates that rows alone don't tell. */
const untold: readonly string[] = ['aggregate-current', 'coreflow-identified', 'coreflow-retired'];

/** Both for one cluster, in order; what the view does not tell is left out of both but for its name. */
export async function gatesBothWays(
  service: TestService,
  clusterId: string,
): Promise<{ view: Side[]; program: Side[] }> {
  const { rows } = await service.database.owner.query<{ gate: string; missing: string | null; met: boolean | null }>(
    'select gate, missing_count as missing, met from operator.gates where cluster_id = $1 order by place',
    [clusterId],
  );
  const explained = await service.done('explainFleetCutover', { clusterId, subject: { kind: 'cluster' } });
  for (const { gate, missing, met } of rows) {
    if (met !== (missing === null ? null : missing === '0')) throw new Error(`${gate} contradicts itself`);
  }
  return {
    view: rows.map(({ gate, missing }) => ({ gate, missing: missing === null ? null : Number(missing) })),
    program: explained.gates.map(({ code, missingCount }) => ({
      gate: code,
      missing: untold.includes(code) ? null : missingCount,
    })),
  };
}
