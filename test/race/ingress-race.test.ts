import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { IFleetCutoverIngressDesignation } from '../../src/contract/ingress.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import type { KeyRing } from '../../src/features/ingress/sealing.js';
import { Secret } from '../../src/secret.js';
import { cutover } from '../support/cutover.js';
import { emptySpec, type IngressStage, ingressStage, launcherLogin } from '../support/pallet-phase.js';
import { type Answer, mutationId, startService, type TestService } from '../support/service.js';

const ring: KeyRing = [{ keyId: 'k1', key: new Secret(randomBytes(32).toString('base64')) }];
let service: TestService;
/** Another administrator of the organization. */
let bob: string;
let stage: IngressStage;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn', keyRing: ring });
  const issued = await service.done('issueAdministratorToken', {
    mutationId: mutationId(),
    principalId: 'bob',
    role: 'administrator',
  });
  bob = issued.secrets[0]!.secret;
  stage = await ingressStage(service, 'race');
});
afterAll(() => service.close());

type Prepared = Answer<'prepareFleetCutoverIngress'>;
const outcome = ({ status, body }: Prepared) => (status === 200 ? 'done' : `${status} ${body.code}`);

/** What the rows say: a gapless chain, one sealed secret for each generation, and one audit row for each designation. */
async function expectSound({ clusterId, serviceId }: IngressStage, designations: number): Promise<void> {
  const { owner } = service.database;
  const { rows } = await owner.query<{ record: string }>(
    'select record from control.ingress_designation_revisions where cluster_id = $1 order by generation',
    [clusterId],
  );
  const chain = rows.map((row) => JSON.parse(row.record) as IFleetCutoverIngressDesignation);
  expect(chain).toHaveLength(designations);
  for (const [index, each] of chain.entries()) {
    expect(each.generation).toBe(index + 1);
    expect(each.predecessor).toEqual(index === 0 ? null : referenceOf(chain[index - 1]!));
  }
  const { rows: counts } = await owner.query<Record<'sealed' | 'generations' | 'audited', number>>(
    `select (select count(*)::int from control.sealed_secrets where cluster_id = $1) as sealed,
      (select coalesce(sum(newest_generation), 0)::int from control.credentials
        where cluster_id = $1 and subject_id = $2 and kind = 'ingress-launcher') as generations,
      (select count(*)::int from control.audit_rows where chain_id = $1 and method = 'prepareFleetCutoverIngress') as audited`,
    [clusterId, serviceId],
  );
  expect(counts[0]).toEqual({ sealed: designations, generations: designations, audited: designations });
}

describe('two administrators at once', () => {
  it('one wins, the other is told what is current; so in five rounds, the first of which creates', async () => {
    for (let round = 1; round <= 5; round += 1) {
      const request = await stage.request();
      const answers = await Promise.all(
        [service.token, bob].map((token) =>
          service.call('prepareFleetCutoverIngress', { ...request, mutationId: mutationId() }, token),
        ),
      );
      expect(answers.map(outcome).sort()).toEqual(['409 designation-stale', 'done']);
      const won = answers.find((answer) => answer.status === 200)!.body;
      expect(answers.find((answer) => answer.status === 409)!.body).toMatchObject({
        expectation: 'expectedDesignation',
        current: referenceOf(won.designation),
        mutationOutcome: 'not-applied',
        retrySafe: false,
      });
      await expectSound(stage, round);
    }
  });

  it('many at once: still one', async () => {
    const request = await stage.request();
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        service.call(
          'prepareFleetCutoverIngress',
          { ...request, mutationId: mutationId() },
          index % 2 ? bob : undefined,
        ),
      ),
    );
    expect(answers.map(outcome).sort()).toEqual([...Array(11).fill('409 designation-stale'), 'done']);
    await expectSound(stage, 6);
  });

  it('one request that is sent many times at once is done once', async () => {
    const request = await stage.request();
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => service.done('prepareFleetCutoverIngress', request)),
    );
    expect(answers.filter((answer) => !answer.replayed)).toHaveLength(1);
    expect(new Set(answers.map((answer) => answer.designation.digest)).size).toBe(1);
    expect(answers.every((answer) => answer.current)).toBe(true);
    await expectSound(stage, 7);
  });
});

describe('a rotation', () => {
  it('against a change of the spec: one of them, whichever came first', async () => {
    for (let round = 0; round < 8; round += 1) {
      const request = await stage.request();
      const change = {
        mutationId: mutationId(),
        clusterId: stage.clusterId,
        serviceId: stage.serviceId,
        expectedSpec: request.heldSpec,
        spec: { ...emptySpec, imageDigest: `sha256:${String(round).padStart(64, '0')}` as const },
      };
      const rotate = () => service.call('prepareFleetCutoverIngress', request);
      const put = () => service.call('putServiceSpec', change, bob);
      const [first, second] = round % 2 === 0 ? [rotate(), put()] : [put(), rotate()];
      const [left, right] = await Promise.all([first, second]);
      const [rotated, changed] = (round % 2 === 0 ? [left, right] : [right, left]) as [
        Prepared,
        Answer<'putServiceSpec'>,
      ];
      const { spec } = await stage.spec();
      if (rotated.status === 200) {
        expect([changed.status, changed.body.code, changed.body.current]).toEqual([
          409,
          'spec-stale',
          referenceOf(spec),
        ]);
        expect(rotated.body.spec).toEqual(referenceOf(spec));
      } else {
        expect([rotated.status, rotated.body.code, rotated.body.current]).toEqual([
          409,
          'spec-stale',
          referenceOf(spec),
        ]);
        expect(referenceOf(changed.body.spec)).toEqual(referenceOf(spec));
        expect(spec.secretInputs).toEqual([]);
      }
      expect(spec.predecessor).toEqual(request.heldSpec);
    }
  });

  it('against the service’s retirement: before it, or refused', async () => {
    const retiring = stage;
    const before = (await retiring.designation())!.generation;
    const request = await retiring.request();
    const [rotated, retired] = await Promise.all([
      service.call('prepareFleetCutoverIngress', request),
      service.call('retireService', { mutationId: mutationId(), serviceId: retiring.serviceId }, bob),
    ]);
    expect(retired.status).toBe(200);
    expect(['done', '422 service-retired']).toContain(outcome(rotated));
    expect((await retiring.designation())!.generation).toBe(before + (rotated.status === 200 ? 1 : 0));
    expect(outcome(await retiring.prepare())).toBe('422 service-retired');
  });

  it('against the credential’s revocation: the designated credential is never a revoked one after both', async () => {
    const revoking = await ingressStage(service, 'revoking');
    await revoking.prepared();
    for (let round = 0; round < 6; round += 1) {
      const request = await revoking.request();
      const rotate = () => service.call('prepareFleetCutoverIngress', request);
      const revoke = () => revoking.revoke(request.expectedDesignation!);
      const [left, right] = await Promise.all(round % 2 === 0 ? [rotate(), revoke()] : [revoke(), rotate()]);
      const [rotated, revoked] = (round % 2 === 0 ? [left, right] : [right, left]) as [
        Prepared,
        Awaited<ReturnType<typeof revoke>>,
      ];
      expect(outcome(rotated)).toBe('done');
      const { designation } = rotated.body;
      const bearer = await revoking.bearer(ring, designation);
      const { credentialId, generation } = designation.credential;
      expect(await launcherLogin(service, credentialId, bearer)).toBe(generation);
      // Revoked before: another credential followed. Rotated before: the revocation named what was not current any more.
      if (revoked.status === 200) {
        expect([revoked.body.credential.revoked, generation]).toEqual([true, 1]);
        expect(revoked.body.credential.credentialId).not.toBe(credentialId);
      } else expect(revoked.body.code).toBe('designation-stale');
    }
  });

  it('against the launcher’s own logins: whoever holds what was used last is never locked out', async () => {
    const living = await ingressStage(service, 'living');
    let held = (await living.prepared()).designation;
    let bearer = await living.bearer(ring, held);
    const { credentialId } = held.credential;
    expect(await launcherLogin(service, credentialId, bearer)).toBe(1);
    for (let round = 0; round < 5; round += 1) {
      const [rotated, ...logins] = await Promise.all([
        living.prepared(),
        ...Array.from({ length: 12 }, () => launcherLogin(service, credentialId, bearer)),
      ]);
      expect(new Set(logins)).toEqual(new Set([held.credential.generation]));
      const newest = await living.bearer(ring, rotated.designation);
      // Some come with the new one, some still with the old one: none of the new ones is refused.
      const [fresh, old] = await Promise.all([
        Promise.all(Array.from({ length: 8 }, () => launcherLogin(service, credentialId, newest))),
        Promise.all(Array.from({ length: 8 }, () => launcherLogin(service, credentialId, bearer))),
      ]);
      expect(new Set(fresh)).toEqual(new Set([rotated.designation.credential.generation]));
      for (const each of old) expect([held.credential.generation, 'credential-refused']).toContain(each);
      expect(await launcherLogin(service, credentialId, bearer)).toBe('credential-refused');
      held = rotated.designation;
      bearer = newest;
    }
  });
});

describe('a preparation', () => {
  it('against the advance to pallet and the reports after it: one designation, and it names the new runtime', async () => {
    const cut = await cutover(service, 'advancing', { volumes: [1, 1] });
    await cut.bringTo('switching');
    await cut.readyFor('pallet');
    const { clusterId } = cut;
    const created = await service.done('createService', { mutationId: mutationId(), name: 'advancing-new' });
    const { serviceId } = created.service;
    const put = await service.done('putServiceSpec', {
      mutationId: mutationId(),
      clusterId,
      serviceId,
      expectedSpec: null,
      spec: emptySpec,
    });
    const seen = new Set<string>();
    const won: Prepared[] = [];
    let running = true;
    const administrator = async (token: string) => {
      while (running) {
        const { runtime, scope, targetSet } = await cut.fleet.state();
        const request = {
          mutationId: mutationId(),
          clusterId,
          serviceId,
          runtime: referenceOf(runtime),
          scope: scope!,
          targetSet: targetSet!,
          heldSpec: referenceOf(put.spec),
          expectedDesignation: null as Reference | null,
        };
        const answer = await service.call('prepareFleetCutoverIngress', request, token);
        seen.add(outcome(answer));
        if (answer.status === 200) won.push(answer);
        if (answer.status === 200 || answer.body.code === 'designation-stale') return;
      }
    };
    const administrators = [administrator(service.token), administrator(bob)];
    const advanced = await cut.advance('pallet');
    expect(advanced.status).toBe(200);
    await cut.reportAll();
    const late = setTimeout(() => (running = false), 20_000);
    await Promise.all(administrators);
    clearTimeout(late);
    expect(won).toHaveLength(1);
    expect(won[0]!.body.designation.runtime).toEqual(referenceOf(advanced.body.runtime));
    const allowed = ['done', '409 designation-stale', '409 runtime-stale', '422 phase-refused', '422 ports-unknown'];
    expect([...seen].filter((each) => !allowed.includes(each))).toEqual([]);
  });
});
