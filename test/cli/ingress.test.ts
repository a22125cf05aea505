import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KeyRing } from '../../src/features/ingress/sealing.js';
import { Secret } from '../../src/secret.js';
import { environmentOf, runCommand } from '../support/command-line.js';
import { type IngressStage, ingressStage, launcherLogin } from '../support/pallet-phase.js';
import { startService, type TestService } from '../support/service.js';

const ring: KeyRing = [{ keyId: 'k1', key: new Secret(randomBytes(32).toString('base64')) }];
let service: TestService;
let stage: IngressStage;
let state: string;
/** Everything that any command printed. */
let printed = '';

beforeAll(async () => {
  service = await startService({ logLevel: 'warn', keyRing: ring });
  stage = await ingressStage(service, 'cli');
  state = await mkdtemp(join(tmpdir(), 'fleet-cutover-ingress-'));
});
afterAll(async () => {
  await service.close();
  await rm(state, { recursive: true });
});

async function run(...args: string[]) {
  const environment = { ...environmentOf(service), FLEET_CUTOVER_STATE_DIR: state };
  const result = await runCommand(environment, ['ingress', ...args]);
  printed += result.stdout + result.stderr;
  return result;
}

const cluster = ['--cluster', 'cli'];
const idIn = (stderr: string) => /mutation id: (\S+)/.exec(stderr)![1]!;

describe('ingress', () => {
  it('is usage without a cluster or a service', async () => {
    for (const args of [['prepare'], ['prepare', ...cluster], ['rotate'], ['show'], ['revoke']])
      expect((await run(...args)).code).toBe(2);
  });

  it('show and rotate say that nothing is designated', async () => {
    for (const command of ['show', 'rotate', 'revoke']) {
      const result = await run(command, ...cluster);
      expect([result.code, result.stdout]).toEqual([1, '']);
      expect(result.stderr).toContain('record-unknown');
    }
  });

  it('prepare designates, after a dry run that does not; a second one is told what is current', async () => {
    const args = ['prepare', ...cluster, '--service', stage.serviceId];
    const dry = await run(...args, '--dry-run');
    expect(dry).toMatchObject({ code: 0 });
    expect(dry.stdout).toContain('dry run: nothing was changed');
    expect(await stage.designation()).toBeNull();
    const done = await run(...args);
    const designation = (await stage.designation())!;
    expect(done).toMatchObject({ code: 0 });
    expect(done.stdout).toContain(`designation ${designation.id} generation 1 ${designation.digest}`);
    expect(done.stdout).toContain(`credential  ${designation.credential.credentialId} generation 1`);
    const again = await run(...args);
    expect(again.code).toBe(1);
    expect(again.stderr).toContain('designation-stale');
    expect(again.stderr).toContain(designation.digest);
    // The attempt that was done is repeated under its id, although what it compared against has moved.
    const repeated = await run(...args, '--mutation-id', idIn(done.stderr), '--json');
    expect(JSON.parse(repeated.stdout)).toMatchObject({ replayed: true, current: true, designation });
  });

  it('rotate issues the next generation, once for a mutation id', async () => {
    const done = await run('rotate', ...cluster, '--json');
    const answer = JSON.parse(done.stdout);
    expect(answer).toMatchObject({ replayed: false, designation: { generation: 2, credential: { generation: 2 } } });
    const id = idIn(done.stderr);
    for (let repeat = 0; repeat < 2; repeat += 1) {
      const repeated = JSON.parse((await run('rotate', ...cluster, '--json', '--mutation-id', id)).stdout);
      expect(repeated).toEqual({ ...answer, replayed: true });
    }
    expect((await stage.designation())!.generation).toBe(2);
    // An id that was never used is a first attempt.
    const first = await run('rotate', ...cluster, '--mutation-id', 'mu-of-mine', '--json');
    expect(JSON.parse(first.stdout)).toMatchObject({ replayed: false, designation: { generation: 3 } });
    const superseded = JSON.parse((await run('rotate', ...cluster, '--json', '--mutation-id', id)).stdout);
    expect(superseded).toEqual({ ...answer, replayed: true, current: false });
    const another = await run('prepare', ...cluster, '--service', stage.serviceId, '--mutation-id', id);
    expect([another.code, another.stderr]).toEqual([2, expect.stringContaining('belongs to an earlier command')]);
    expect((await run('rotate', ...cluster, '--dry-run')).stdout).toContain('dry run');
    expect((await stage.designation())!.generation).toBe(3);
  });

  it('show tells the generations that are accepted', async () => {
    const designation = (await stage.designation())!;
    const { credentialId } = designation.credential;
    const unused = await run('show', ...cluster);
    expect(unused).toMatchObject({ code: 0, stderr: '' });
    expect(unused.stdout).toContain(`credential  ${credentialId} generation 3, not used yet\n`);
    expect(unused.stdout).toMatch(/spec {8}ss-\S+ generation 4 sha256:[0-9a-f]{64}, held\n/);
    const bearer = await stage.bearer(ring, designation);
    expect(await launcherLogin(service, credentialId, bearer)).toBe(3);
    expect((await run('show', ...cluster)).stdout).toContain('generation 3, in use');
    await run('rotate', ...cluster);
    expect((await run('show', ...cluster)).stdout).toContain(
      'generation 4, not used yet; generation 3 is accepted until it is',
    );
    await stage.putSpec({ secretInputs: [] });
    expect((await run('show', ...cluster)).stdout).toContain('held, not the service’s current spec any more');
    const json = JSON.parse((await run('show', ...cluster, '--json')).stdout);
    expect(json).toEqual({
      designation: await stage.designation(),
      spec: { state: 'held', current: false },
      credential: {
        credentialId,
        kind: 'ingress-launcher',
        subjectId: stage.serviceId,
        role: null,
        newestGeneration: 4,
        usedGeneration: 3,
        revoked: false,
      },
    });
  });

  it('revoke ends them all, and rotate begins anew', async () => {
    const { credentialId } = (await stage.designation())!.credential;
    const revoked = await run('revoke', ...cluster);
    expect(revoked).toMatchObject({ code: 0 });
    expect(revoked.stdout).toContain(`credential  ${credentialId}, revoked`);
    expect((await run('show', ...cluster)).stdout).toContain(`${credentialId}, revoked`);
    const again = await run('revoke', ...cluster, '--json', '--mutation-id', idIn(revoked.stderr));
    expect(JSON.parse(again.stdout)).toMatchObject({ replayed: true, credential: { revoked: true } });
    await run('rotate', ...cluster);
    const { credential } = (await stage.designation())!;
    expect([credential.credentialId === credentialId, credential.generation]).toEqual([false, 1]);
  });

  it('printed no bearer', async () => {
    const { rows } = await service.database.owner.query<
      Record<'service_id' | 'credential_id' | 'secret_id', string> & { version: string }
    >('select service_id, credential_id, secret_id, version from control.sealed_secrets');
    expect(rows).toHaveLength(5);
    const designation = (await stage.designation())!;
    for (const row of rows) {
      const version = Number(row.version);
      const bearer = await stage.bearer(ring, {
        ...designation,
        credential: { credentialId: row.credential_id, generation: version },
        secret: { secretId: row.secret_id, version },
      });
      expect(printed).not.toContain(bearer.reveal());
    }
  });
});
