import pg from 'pg';
import { startServiceHost } from './service-host.js';
import { createOwnerClient } from './owner-client.js';
import { syntheticFleet } from '../support/synthetic-fleet.js';
import { fill, latencyAt } from './fill.js';
import { bareFill } from './bare-fill.js';
import { openForCommand } from '../../src/database.js';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import { quantile } from './quantile.js';
import { readdirSync, readFileSync } from 'node:fs';
function cpu() {
  const out: Record<string, number> = {};
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    try {
      const cmd = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const f = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const t = (Number(f[11]) + Number(f[12])) * 10;
      let key: string | undefined;
      if (pid === String(process.pid)) key = 'client';
      else if (cmd.includes('bench/service-process')) key = 'service';
      else if (cmd.startsWith('postgres:') ) { const ppid = f[1]!; const parent = readFileSync(`/proc/${ppid}/cmdline`, 'utf8'); if (parent.includes('fleet-cutover-bench')) key = 'postgres ' + cmd.replace(/^postgres: (\S+).*/, '$1'); }
      if (key) out[key] = (out[key] ?? 0) + t;
    } catch {}
  }
  return out;
}
const diff = (a: Record<string, number>, b: Record<string, number>, n: number) => Object.fromEntries(Object.entries(b).map(([k, v]) => [k, +((v - (a[k] ?? 0)) / n).toFixed(2)]).filter(([, v]) => (v as number) > 0.02));
const host = await startServiceHost(process.argv[2] === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${process.argv[2]}`]);
const client = createOwnerClient(host.url, host.token);
try {
  const fleet = await syntheticFleet(client, { clusterId: 'a', nodes: 16, volumesPerNode: Array.from({ length: 16 }, () => 2048) });
  const access = await openForCommand(host.config);
  const c = new pg.Client(connectionConfig(parseDatabaseUrl(access.ownerUrl)));
  await c.connect();
  const stat = process.env.PGSS === '1';
  if (stat) { await c.query('create extension if not exists pg_stat_statements'); await c.query('select pg_stat_statements_reset()'); }
  const c0 = cpu();
  const filled = await fill(client, fleet, fleet.keys(), () => {});
  console.log('cpu ms per mutation', diff(c0, cpu(), filled.latencies.length));
  if (stat) {
  const { rows } = await c.query(`select calls, round(total_exec_time::numeric,1) as exec, round((total_exec_time/calls)::numeric,3) as mean, round(total_plan_time::numeric,1) as plan, wal_bytes/calls as wal, left(regexp_replace(query, '\\s+', ' ', 'g'), 110) as q from pg_stat_statements where calls > 50 order by total_exec_time desc limit 30`);
  console.table(rows);
  }
  const c1 = cpu();
  const bare = await bareFill(host.config, { clusterId: 'a', transactions: filled.latencies.length, rowsEach: 32 });
  if (stat) { const { rows } = await c.query(`select calls, round(total_exec_time::numeric,1) as exec, round((total_exec_time/calls)::numeric,3) as mean, wal_bytes/calls as wal, left(regexp_replace(query, '\\s+', ' ', 'g'), 110) as q from pg_stat_statements where calls > 50 and query like '%bare.%' order by total_exec_time desc limit 30`); console.table(rows); }
  console.log('bare cpu', diff(c1, cpu(), filled.latencies.length));
  console.log({ fillMs: filled.ms, bareMs: bare.ms, ratio: filled.ms / bare.ms, at1024: latencyAt(filled, 1024, 100), at6000: latencyAt(filled, 6016, 60), bare: quantile(bare.latencies, 0.5), completion: filled.latencies.at(-1) });
  await c.end(); await access.release();
} finally { await client.close(); await host.stop(); }
