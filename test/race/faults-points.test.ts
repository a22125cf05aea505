import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { mutationNames } from '../../src/contract/methods.js';
import { verify } from '../../src/features/verify/verify.js';
import { Secret } from '../../src/secret.js';
import { cutConnections, openTerminator, type Terminator } from '../support/kill-connections.js';
import { PointHook } from '../support/kill-points.js';
import type { Act } from '../support/oracle-act.js';
import { makeActs } from '../support/oracle-acts.js';
import { openRawClient, type RawClient } from '../support/oracle-http.js';
import { newSealingKey } from '../support/oracle-sealing.js';
import { recordPoints, strike } from '../support/oracle-strike.js';
import { startService, type TestService } from '../support/service.js';

const hook = new PointHook();
let service: TestService;
let client: RawClient;
let terminator: Terminator;
let acts: Act[];
/** Of each act, the points that it passed when it was recorded. */
const points = new Map<Act, string[]>();

beforeAll(async () => {
  const key = newSealingKey();
  const keyRing = [{ keyId: key.keyId, key: new Secret(key.key) }];
  service = await startService({ faults: hook, logLevel: 'silent', keyRing });
  client = openRawClient(service.url, service.token);
  terminator = openTerminator(service.database.ownerUrl);
  acts = makeActs(client, 'p', key);
  for (const act of acts) points.set(act, await recordPoints(act, hook));
});
afterAll(async () => {
  await terminator.close();
  await client.close();
  await service.close();
});

/** Short form: one act of each shape of transaction. `npm run faults` does it with all, and kills processes, too. */
const thorough = [
  'prepare, incomplete',
  'prepare, in place',
  'prepare, completing',
  'report, of a manager',
  'report, of held fences',
  'createService',
  'advance, to pallet',
  'ingress, rotated',
  'writeOffVolume, confirmed',
];
/** Of these, what surrounds COMMIT: whether it happened is all that a lost answer leaves open. */
const atTheEnd = [
  'advance, to draining',
  'advance, to switching',
  'revokeFleetCutoverCoreflowCredential',
  'ingress, designated',
  'ingress, after a revocation',
  'revokeFleetCutoverIngressCredential',
  'writeOffNode, proposed',
  'writeOffNode, confirmed',
  'writeOffVolume, proposed',
];
/** On the wire the two faults differ in who ends the connection, so the second one is struck at fewer acts. */
const brief = ['prepare, incomplete', 'report, another snapshot'];

async function strikeAt(name: string, chosen: (point: string) => boolean, fault: () => void): Promise<string[]> {
  const act = acts.find((each) => each.name === name)!;
  const struck = points.get(act)!.filter(chosen);
  expect(struck.length).toBeGreaterThan(0);
  const wrong: string[] = [];
  for (const point of struck)
    wrong.push(...(await strike(act, point, { hook, database: service.database.owner, fault })));
  return wrong;
}

const isEnd = (point: string) => /:commit(ted)?$/.test(point);

describe('the list of fault points', () => {
  it('has an act of every mutation', () => {
    const acted = new Set(acts.map((act) => act.method));
    expect(mutationNames.filter((name) => !acted.has(name))).toEqual([]);
  });

  it('reaches from the first statement to the confirmation of COMMIT', () => {
    for (const passed of points.values()) {
      expect(passed.some((point) => /:1$/.test(point))).toBe(true);
      expect(passed.slice(-2).map((point) => point.split(':')[1])).toEqual(['commit', 'committed']);
    }
  });
});

describe('where the connection is cut', () => {
  const cut = () => cutConnections(service.database.db);
  it.each(thorough)('%s is done once, at every point', async (name) => {
    expect(await strikeAt(name, () => true, cut)).toEqual([]);
  });
  it.each(atTheEnd)('%s is done once, before COMMIT and after it', async (name) => {
    expect(await strikeAt(name, isEnd, cut)).toEqual([]);
  });
});

describe('where the server ends the session', () => {
  it.each(brief)('%s is done once, at every point', async (name) => {
    expect(
      await strikeAt(
        name,
        () => true,
        () => terminator.terminate(service.database.db),
      ),
    ).toEqual([]);
  });
});

describe('where the process is interrupted after COMMIT', () => {
  it.each([...thorough, 'advance, to draining', 'writeOffNode, confirmed'])('%s is done once', async (name) => {
    const interrupt = () => {
      throw new Error('interrupted');
    };
    expect(await strikeAt(name, (point) => point.endsWith(':committed'), interrupt)).toEqual([]);
  });
});

it('leaves rows behind that verify', async () => {
  const report = await verify(service.deps, { clusterId: null, remembered: [] });
  expect(report).toMatchObject({ clean: true, findings: [] });
});
