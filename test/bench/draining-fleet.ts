/** A fleet in `draining` whose aggregate is complete, with the evidence that each of its nodes has for each page. */
import { heldFence } from '../../src/agents/pallet/fence.js';
import { newMutationId } from '../../src/client/mutation-id.js';
import type {
  IFleetCutoverPreparedVolumeHandoffPage,
  TSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
} from '../../src/contract/handoff.js';
import type {
  IFleetCutoverHeldVolumeFenceEvidencePage,
  TFleetCutoverVolumeFence,
} from '../../src/contract/held-fence.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import {
  prepareKeys,
  sparkPost,
  type SyntheticFleet,
  syntheticFleet,
  type SyntheticNode,
} from '../support/synthetic-fleet.js';
import type { OwnerClient } from './owner-client.js';

export interface DrainingFleetOptions {
  readonly clusterId: string;
  /** Of each node. */
  readonly volumesPerNode: readonly number[];
  /** As of any synthetic fleet; every one has a container on every node. */
  readonly services?: number;
}

export interface DrainingFleet {
  readonly nodes: readonly SyntheticNode[];
  readonly pageCount: number;
  /** Pages on which the node has entries. */
  heldPages(node: SyntheticNode): readonly number[];
  /** Body of the node's next report, with its evidence for the page; to be sent in the order in which they were made. */
  nextReport(node: SyntheticNode, pageIndex: number): string;
}

/** Through the real methods and reports; nothing is covered yet. */
export async function drainingFleet(client: OwnerClient, options: DrainingFleetOptions): Promise<DrainingFleet> {
  const { clusterId, volumesPerNode } = options;
  const fleet = await syntheticFleet(client, { ...options, nodes: volumesPerNode.length });
  for (const { nodeId, content } of fleet.nodes) {
    const pallet = { version: '1', fenceStoreId: fenceStoreOf(nodeId), ready: false };
    await fleet.observe(nodeId, { local: { ...fleet.localSnapshot(nodeId, content), pallet } });
  }
  const advanced = await client.done('advanceFleetCutoverPhase', {
    mutationId: newMutationId(),
    clusterId,
    runtime: fleet.runtime,
    to: 'draining',
  });
  const pinned = { clusterId, runtime: referenceOf(advanced.runtime), scope: fleet.scope };
  await prepareKeys(client, pinned, null, fleet.keys());
  const { aggregate, behind } = await client.done('readFleetCutoverState', { clusterId });
  if (aggregate?.state !== 'complete' || behind) throw new Error(`the set of ${clusterId} is not complete and current`);
  const pages = await readPages(client.url, fleet, referenceOf(aggregate), aggregate.pageCount);
  return {
    nodes: fleet.nodes,
    pageCount: aggregate.pageCount,
    heldPages: ({ nodeId }) => pages.flatMap((page) => (page.fences.has(nodeId) ? [page.pageIndex] : [])),
    nextReport: (node, pageIndex) => {
      const { contentDigest, fences } = pages[pageIndex]!;
      return reportText(node, node === fleet.nodes[0], {
        aggregate: referenceOf(aggregate),
        pageIndex,
        contentDigest,
        nodeId: node.nodeId,
        fences: fences.get(node.nodeId) ?? [],
      });
    },
  };
}

const fenceStoreOf = (nodeId: string) => `fs-${nodeId}`;

/** One page of the aggregate, with the fences of all nodes that have entries on it, in page order. */
interface HeldPage {
  readonly pageIndex: number;
  readonly contentDigest: IFleetCutoverPreparedVolumeHandoffPage['contentDigest'];
  readonly fences: ReadonlyMap<string, TFleetCutoverVolumeFence[]>;
}

async function readPages(
  url: string,
  fleet: SyntheticFleet,
  aggregate: Reference,
  pageCount: number,
): Promise<HeldPage[]> {
  const pages: HeldPage[] = [];
  for (let pageIndex = 0; pageIndex < pageCount; pageIndex += 1) {
    const { page } = await readPage(url, fleet.nodes[0]!, aggregate, pageIndex);
    const fences = new Map<string, TFleetCutoverVolumeFence[]>();
    for (const nodeId of new Set(page.handoffs.map((entry) => entry.nodeId))) {
      const own = await readPage(url, fleet.node(nodeId), aggregate, pageIndex);
      fences.set(
        nodeId,
        own.nodeHandoffs.map((handoff) => heldFence(fenceStoreOf(nodeId), handoff, 1)),
      );
    }
    pages.push({ pageIndex, contentDigest: page.contentDigest, fences });
  }
  return pages;
}

async function readPage(url: string, { nodeId, token }: SyntheticNode, aggregate: Reference, pageIndex: number) {
  const { status, text, body } = await sparkPost<TSparkGetFleetCutoverPreparedVolumeHandoffsResponse>(
    url,
    sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint,
    { nodeId, nodeToken: token, protocol: supportedProtocol, aggregate, pageIndex },
  );
  if (status !== 200 || body.page === null) throw new Error(`page ${pageIndex}: ${status} ${text}`);
  return { page: body.page, nodeHandoffs: body.nodeHandoffs };
}

function reportText(
  node: SyntheticNode,
  controlAvailable: boolean,
  evidence: IFleetCutoverHeldVolumeFenceEvidencePage,
): string {
  node.sequence += 1;
  return JSON.stringify({
    nodeId: node.nodeId,
    nodeToken: node.token,
    protocol: supportedProtocol,
    observation: {
      reporterSessionId: node.reporterSessionId,
      observationSequence: node.sequence,
      observedAt: 1_700_000_000_000 + node.sequence,
      state: 'member',
      localSwarmNodeId: node.swarmNodeId,
      controlAvailable,
      fleetCutoverHeldVolumeFences: evidence,
    },
  });
}
