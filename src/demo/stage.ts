/** Who and what plays in the demonstration. */
import { join } from 'node:path';
import { capturedSource } from '../agents/docker/captured-source.js';
import { overlaySource, type SwarmOverlay } from '../agents/docker/overlay-source.js';
import type { DockerSource } from '../agents/docker/source.js';
import { createSparkAgent, type SparkAgent } from '../agents/spark/agent.js';
import { openSparkState } from '../agents/spark/spark-state.js';
import { type AdministratorClient, createAdministratorClient } from '../client/administrator-client.js';
import { createSparkClient, type SparkClient } from '../client/spark-client.js';
import { systemClock } from '../clock.js';
import type { Config } from '../config.js';
import { bytesDigest } from '../contract/digest.js';
import { systemRandom } from '../random.js';
import type { Secret } from '../secret.js';
import type { Capture } from './capture.js';
import { DemoPallet } from './demo-pallet.js';
import { recordedClient } from './recorded-client.js';
import type { SecretCanary } from './secret-canary.js';

export const clusterId = 'demo';

export interface Stage {
  readonly capture: Capture;
  /** What happens to the captured swarm while the demonstration runs. */
  readonly overlay: SwarmOverlay;
  readonly directory: string;
  readonly url: string;
  readonly say: (line: string) => void;
  readonly config: Config;
  /** The lines that the service has logged, at its finest level. */
  readonly log: () => readonly string[];
  readonly canary: SecretCanary;
}

export interface Agent {
  readonly node: string;
  readonly token: Secret;
  readonly client: SparkClient;
  readonly spark: SparkAgent;
  readonly pallet: DemoPallet;
}

export function nodeSource({ capture, overlay }: Stage, node: string): DockerSource {
  return overlaySource(capturedSource(capture.directoryOf(node)), overlay);
}

export function openAdministrator({ url, canary }: Stage, token: Secret): AdministratorClient {
  return recordedClient(createAdministratorClient({ url, token }), canary);
}

export function openAgent(stage: Stage, node: string, token: Secret): Agent {
  const { directory, url, canary } = stage;
  const client = createSparkClient({ url, nodeId: node, nodeToken: token });
  const pallet = new DemoPallet(join(directory, 'pallet', node), node);
  const spark = createSparkAgent({
    client,
    source: nodeSource(stage, node),
    state: openSparkState(join(directory, 'agents', node)),
    facts: {
      pallet: null,
      spark: {
        bundleDigest: bytesDigest('demo bundle'),
        unitDigest: bytesDigest('demo unit'),
        configurationDigest: bytesDigest(`demo configuration of ${node}`),
        oldModeRefused: true,
      },
    },
    pallet,
    clock: systemClock,
    random: systemRandom,
    log: () => {},
  });
  const runOnce: SparkAgent['runOnce'] = async (signal) => {
    const run = await spark.runOnce(signal);
    canary.show(`round of ${node}`, JSON.stringify(run));
    return run;
  };
  return { node, token, client, spark: { ...spark, runOnce }, pallet };
}
