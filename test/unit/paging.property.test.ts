/** Random histories of one fleet against a model that knows only the rules: what is required, what is prepared, 32 a page. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { IFleetCutoverPreparedVolumeHandoffAggregate } from '../../src/contract/handoff.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { independentBareDigest } from '../support/independent-digest.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import {
  container,
  type SyntheticFleet,
  syntheticFleet,
  type SyntheticKey,
  upsertOf,
  volumeMount,
  volumesOf,
} from '../support/synthetic-fleet.js';

let service: TestService;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());

/** Picks are positions in whatever there is then, modulo its length. */
type Step =
  | { readonly kind: 'upsert'; readonly picks: readonly number[]; readonly capacity: number | null }
  | { readonly kind: 'remove'; readonly picks: readonly number[] }
  | { readonly kind: 'fill' }
  | { readonly kind: 'rederive' }
  | { readonly kind: 'add-volumes'; readonly node: number; readonly count: number }
  | { readonly kind: 'lose-containers'; readonly node: number }
  | { readonly kind: 'same-keys'; readonly node: number }
  | { readonly kind: 'block'; readonly node: number; readonly pick: number }
  | { readonly kind: 'unblock'; readonly node: number }
  | { readonly kind: 'release'; readonly picks: readonly number[] };

const pick = fc.nat({ max: 9999 });
const node = fc.nat({ max: 2 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('upsert' as const),
      picks: fc.array(pick, { minLength: 1, maxLength: 20 }),
      capacity: fc.constantFrom(null, 1, 2),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('remove' as const),
      picks: fc.array(pick, { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('fill' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('rederive' as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('add-volumes' as const), node, count: fc.integer({ min: 1, max: 12 }) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lose-containers' as const), node }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('same-keys' as const), node }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('block' as const), node, pick }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('unblock' as const), node }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('release' as const),
      picks: fc.array(pick, { minLength: 1, maxLength: 5 }),
    }),
  },
);

interface Prepared {
  readonly reference: Reference;
  readonly capacity: number | null;
}

const identity = (key: { nodeId: string; id: string }) => `${key.nodeId} ${key.id}`;

class Model {
  readonly required = new Map<string, SyntheticKey>();
  readonly released = new Set<string>();
  readonly blocked = new Map<number, SyntheticKey>();
  readonly prepared = new Map<string, Prepared>();
  readonly generations = new Map<string, number>();
  readonly keys = new Map<string, SyntheticKey>();
  aggregate: IFleetCutoverPreparedVolumeHandoffAggregate | null = null;
  /** What the head was made from: keys, blocked ones, scope. */
  madeFrom = '';
  /** Complete headers, with the references of their set. */
  readonly complete: { header: IFleetCutoverPreparedVolumeHandoffAggregate; references: object[] }[] = [];

  blockedIds(): Set<string> {
    return new Set([...this.blocked.values()].map(identity).filter((id) => this.required.has(id)));
  }
  basis(fleet: SyntheticFleet): string {
    return JSON.stringify([[...this.required.keys()].sort(), [...this.blockedIds()].sort(), fleet.scope.generation]);
  }
  isComplete(): boolean {
    return (
      this.blockedIds().size === 0 &&
      this.required.size === this.prepared.size &&
      [...this.required.keys()].every((id) => this.prepared.has(id))
    );
  }
  references(): { nodeId: string; id: string; generation: number; digest: string }[] {
    return [...this.prepared.keys()]
      .sort()
      .map((id) => ({ nodeId: id.split(' ')[0]!, ...this.prepared.get(id)!.reference }));
  }
}

const chosen = <T>(items: readonly T[], picks: readonly number[]): T[] =>
  items.length === 0 ? [] : [...new Set(picks.map((each) => each % items.length))].map((index) => items[index]!);

class History {
  fleet: SyntheticFleet;
  readonly model = new Model();
  private ordinal = 1000;

  constructor(fleet: SyntheticFleet) {
    this.fleet = fleet;
    this.observe();
  }

  /** A key stays required once it was seen, unless the scope lets it go. */
  private observe(): void {
    for (const key of this.fleet.keys()) {
      this.model.keys.set(identity(key), key);
      if (!this.model.released.has(identity(key))) this.model.required.set(identity(key), key);
    }
  }

  async take(step: Step): Promise<void> {
    const { model } = this;
    const requiredKeys = [...model.required.values()];
    switch (step.kind) {
      case 'upsert': {
        const blocked = model.blockedIds();
        const keys = chosen(requiredKeys, step.picks).filter((key) => !blocked.has(identity(key)));
        return this.prepare(keys, [], step.capacity);
      }
      case 'remove':
        return this.prepare(
          [],
          chosen([...model.prepared.keys()], step.picks).map((id) => model.keys.get(id)!),
          null,
        );
      case 'fill': {
        const blocked = model.blockedIds();
        const missing = requiredKeys.filter((key) => !model.prepared.has(identity(key)) && !blocked.has(identity(key)));
        const surplus = [...model.prepared.keys()]
          .filter((id) => !model.required.has(id))
          .map((id) => model.keys.get(id)!);
        for (let from = 0; from < Math.max(missing.length, surplus.length); from += 16) {
          await this.prepare(missing.slice(from, from + 16), surplus.slice(from, from + 16), null);
        }
        return;
      }
      case 'rederive':
        return this.rederive();
      case 'add-volumes': {
        const { nodeId, content } = this.fleet.nodes[step.node]!;
        if (model.keys.size + step.count > 120) return;
        const added = volumesOf(step.count, this.fleet.services.length, this.ordinal);
        this.ordinal += step.count;
        await this.report(nodeId, { ...content, volumes: [...content.volumes, ...added] });
        return;
      }
      case 'lose-containers': {
        const { nodeId, content } = this.fleet.nodes[step.node]!;
        await this.report(nodeId, { ...content, volumes: content.volumes.slice(1) });
        return;
      }
      case 'same-keys': {
        const { nodeId, content } = this.fleet.nodes[step.node]!;
        await this.report(nodeId, { ...content, looseVolumes: [`loose-${this.ordinal++}`] });
        return;
      }
      case 'block': {
        const { nodeId, content } = this.fleet.nodes[step.node]!;
        const mine = requiredKeys.filter((key) => key.nodeId === nodeId);
        if (mine.length === 0) return;
        const key = mine[step.pick % mine.length]!;
        const volume = key.mountPath.slice('/data/'.length);
        await this.report(nodeId, {
          ...content,
          otherContainers: [container('backup', [volumeMount(volume, '/backup')])],
        });
        model.blocked.set(step.node, key);
        return;
      }
      case 'unblock': {
        const { nodeId, content } = this.fleet.nodes[step.node]!;
        await this.report(nodeId, { ...content, otherContainers: [] });
        model.blocked.delete(step.node);
        return;
      }
      case 'release': {
        for (const key of chosen(requiredKeys, step.picks)) model.released.add(identity(key));
        await this.classify();
        for (const id of model.released) model.required.delete(id);
        return;
      }
      default: {
        const unexpected: never = step;
        throw new TypeError(String(unexpected));
      }
    }
  }

  private async report(nodeId: string, content: Parameters<SyntheticFleet['report']>[1]): Promise<void> {
    await this.fleet.report(nodeId, content);
    this.observe();
  }

  private async classify(): Promise<void> {
    const { fleet, model } = this;
    const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
    const { scope } = await service.done('classifyFleetCutoverScope', {
      mutationId: mutationId(),
      clusterId: fleet.clusterId,
      runtime: fleet.runtime,
      inventory: state.managerSnapshot!,
      expectedScope: fleet.scope,
      statement: {
        ...fleet.statement,
        releasedEntries: [...model.released].map((id) => {
          const { nodeId, serviceId, mountIdentityDigest } = model.keys.get(id)!;
          return { nodeId, serviceId, mountIdentityDigest, reason: 'released' };
        }),
      },
    });
    this.fleet = { ...fleet, scope };
  }

  private request() {
    const { clusterId, runtime, scope } = this.fleet;
    const { aggregate } = this.model;
    return {
      mutationId: mutationId(),
      clusterId,
      runtime,
      scope,
      expectedAggregate: aggregate === null ? null : referenceOf(aggregate),
    };
  }

  private async rederive(): Promise<void> {
    const { aggregate } = await service.done('rederiveFleetCutoverVolumeHandoffs', this.request());
    this.accept(aggregate, []);
  }

  private async prepare(
    upserts: readonly SyntheticKey[],
    removals: readonly SyntheticKey[],
    capacity: number | null,
  ): Promise<void> {
    if (upserts.length + removals.length === 0) return;
    const { model } = this;
    const answer = await service.done('prepareFleetCutoverVolumeHandoffs', {
      ...this.request(),
      upserts: upserts.map((key) => upsertOf(key, capacity)),
      removals: removals.map(({ nodeId, serviceId, mountIdentityDigest }) => ({
        nodeId,
        serviceId,
        mountIdentityDigest,
      })),
    });
    const changes: { nodeId: string; id: string; handoff: object | null }[] = [];
    for (const [index, key] of upserts.entries()) {
      const id = identity(key);
      const before = model.prepared.get(id);
      const outcome = answer.handoffs[index]!;
      expect(identity(outcome)).toBe(id);
      if (before !== undefined && before.capacity === capacity) {
        expect(outcome).toMatchObject({ change: 'unchanged', reference: before.reference });
        continue;
      }
      const generation = (model.generations.get(id) ?? 0) + 1;
      expect(outcome).toMatchObject({
        change: before === undefined ? 'created' : 'revised',
        reference: { id: key.id, generation },
      });
      model.generations.set(id, generation);
      model.prepared.set(id, { reference: outcome.reference, capacity });
      changes.push({ nodeId: key.nodeId, id: key.id, handoff: { generation, digest: outcome.reference.digest } });
    }
    for (const [index, key] of removals.entries()) {
      const outcome = answer.handoffs[upserts.length + index]!;
      expect(outcome).toMatchObject({
        id: key.id,
        change: 'removed',
        reference: model.prepared.get(identity(key))!.reference,
      });
      model.prepared.delete(identity(key));
      changes.push({ nodeId: key.nodeId, id: key.id, handoff: null });
    }
    this.accept(answer.aggregate, changes);
  }

  private accept(
    header: IFleetCutoverPreparedVolumeHandoffAggregate,
    changes: readonly { nodeId: string; id: string; handoff: object | null }[],
  ): void {
    const { model, fleet } = this;
    const complete = model.isComplete();
    const references = model.references();
    const pageCount = complete ? Math.ceil(references.length / 32) : 0;
    const contentDigests = Array.from({ length: pageCount }, (_, pageIndex) =>
      independentBareDigest({ pageIndex, handoffs: references.slice(32 * pageIndex, 32 * pageIndex + 32) }),
    );
    expect(header).toMatchObject({
      generation: (model.aggregate?.generation ?? 0) + 1,
      predecessor: model.aggregate === null ? null : referenceOf(model.aggregate),
      requiredCount: model.required.size,
      actualCount: model.prepared.size,
      state: complete ? 'complete' : 'incomplete',
      pageCount,
      setDigest: complete ? independentBareDigest(contentDigests) : null,
      changeDigest: independentBareDigest([...changes].sort((a, b) => (identity(a) < identity(b) ? -1 : 1))),
      scope: fleet.scope,
    });
    model.aggregate = header;
    model.madeFrom = model.basis(fleet);
    if (complete) model.complete.push({ header, references });
  }

  /** Everything that can be read now is what the model says. */
  async check(): Promise<void> {
    const { fleet, model } = this;
    const { clusterId } = fleet;
    const state = await service.done('readFleetCutoverState', { clusterId });
    const required = [...model.required.keys()];
    const missing = required.filter((id) => !model.prepared.has(id)).length;
    const surplus = [...model.prepared.keys()].filter((id) => !model.required.has(id)).length;
    const blocked = model.blockedIds();
    expect(state).toMatchObject({
      aggregate: model.aggregate,
      missingCount: missing,
      surplusCount: surplus,
      behind: model.aggregate !== null && model.madeFrom !== model.basis(fleet),
      derivation: { requiredCount: required.length, blockerCount: blocked.size },
    });
    const list = await service.done('listFleetCutoverRequiredVolumeHandoffs', { clusterId, cursor: null, limit: 1024 });
    const shown = [...new Set([...required, ...model.prepared.keys()])].sort();
    expect(
      list.entries.map((entry) => [identity(entry), entry.state, entry.handoff, entry.blockers.length > 0]),
    ).toEqual(
      shown.map((id) => {
        const handoff = model.prepared.get(id)?.reference ?? null;
        return [
          id,
          handoff === null ? 'missing' : model.required.has(id) ? 'prepared' : 'surplus',
          handoff,
          blocked.has(id),
        ];
      }),
    );
    for (const { header, references } of [model.complete.at(-1), model.complete.at(-3), model.complete[0]].flatMap(
      (each) => each ?? [],
    )) {
      const handoffs = [];
      for (let pageIndex = 0; pageIndex < header.pageCount; pageIndex += 1) {
        const { page } = await service.done('readFleetCutoverVolumeHandoffPage', {
          clusterId,
          aggregate: referenceOf(header),
          pageIndex,
        });
        expect(page.handoffs.length).toBe(Math.min(32, references.length - 32 * pageIndex));
        handoffs.push(...page.handoffs);
      }
      expect(handoffs).toEqual(references);
    }
  }
}

describe('any history', () => {
  it('leaves header, pages and list as the rules say, after every step', async () => {
    let completed = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 12, maxLength: 22, size: 'max' }), async (steps) => {
        const history = new History(
          await syntheticFleet(service, { nodes: 3, volumesPerNode: [30, 0, 14], services: 1 }),
        );
        for (const each of steps) {
          await history.take(each);
          await history.check();
        }
        completed += history.model.complete.length;
      }),
      { numRuns: 6 },
    );
    expect(completed).toBeGreaterThan(0);
  }, 120_000);
});
