import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { mutationNames } from '../../src/contract/methods.js';
import { cutConnections, openTerminator, type Terminator } from '../support/kill-connections.js';
import { isBackgroundPoint, PointHook } from '../support/kill-points.js';
import { type Act, makeActs } from '../support/oracle-acts.js';
import { openRawClient, type RawClient } from '../support/oracle-http.js';
import { judgeRepetition } from '../support/oracle-outcome.js';
import { startService, type TestService } from '../support/service.js';

const hook = new PointHook();
let service: TestService;
let client: RawClient;
let terminator: Terminator;
let acts: Act[];
/** Of each act, the points that it passed when it was recorded. */
const points = new Map<Act, string[]>();

beforeAll(async () => {
  service = await startService({ faults: hook, logLevel: 'silent' });
  client = openRawClient(service.url, service.token);
  terminator = openTerminator(service.database.ownerUrl);
  acts = await makeActs(client, 'p');
  for (const act of acts) {
    const request = await act.next();
    const passed = await hook.record(async () => {
      const answer = await request.send();
      if (answer.status !== 200) throw new Error(`${act.name}: ${answer.status} ${answer.text}`);
    });
    points.set(
      act,
      passed.filter((point) => !isBackgroundPoint(point)),
    );
  }
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
  'createService',
];
/** On the wire the two faults differ in who ends the connection, so the second one is struck at fewer acts. */
const brief = ['prepare, incomplete', 'report, another snapshot'];

const faults: Record<string, () => void> = {
  'the connection is cut': () => cutConnections(service.database.db),
  'the server ends the session': () => terminator.terminate(service.database.db),
  'the process is interrupted': () => {
    throw new Error('interrupted');
  },
};

async function strike(act: Act, point: string, fault: () => void): Promise<string[]> {
  const request = await act.next();
  hook.arm(point, fault);
  const first = await request.send();
  if (!hook.disarm()) return ['was not hit'];
  return judgeRepetition(service.database.owner, request, first);
}

/** Mutations without an act; the list may only shrink. */
const withoutAct = [
  'advanceFleetCutoverPhase',
  'revokeFleetCutoverCoreflowCredential',
  'writeOffNode',
  'writeOffVolume',
  'prepareFleetCutoverIngress',
  'revokeFleetCutoverIngressCredential',
];

describe('the list of fault points', () => {
  it('has an act of every mutation', () => {
    const acted = new Set(acts.map((act) => act.method));
    const mutations = mutationNames.filter((name) => !withoutAct.includes(name));
    expect(mutations.filter((name) => !acted.has(name))).toEqual([]);
    expect(withoutAct.filter((name) => acted.has(name))).toEqual([]);
  });

  it('reaches from the first statement to the confirmation of COMMIT', () => {
    for (const passed of points.values()) {
      expect(passed.some((point) => /:1$/.test(point))).toBe(true);
      expect(passed.slice(-2).map((point) => point.split(':')[1])).toEqual(['commit', 'committed']);
    }
  });
});

describe.each(Object.keys(faults))('where %s', (what) => {
  const chosen = what === 'the server ends the session' ? brief : thorough;
  it.each(chosen)('%s is done once, at every point', async (name) => {
    const act = acts.find((each) => each.name === name)!;
    const wrong: string[] = [];
    for (const point of points.get(act)!) {
      if (what === 'the process is interrupted' && !point.endsWith(':committed')) continue;
      wrong.push(...(await strike(act, point, faults[what]!)).map((fault) => `${point}: ${fault}`));
    }
    expect(wrong).toEqual([]);
  });
});
