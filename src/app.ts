/** The composition root: what the server consists of, in the order of the features. Only this file sees all of them. */
import type { FastifyInstance } from 'fastify';
import type { Deps } from './deps.js';
import { admissionHandlers } from './features/admission/routes.js';
import { authHandlers } from './features/auth/routes.js';
import { createFleetOperations } from './features/fleet/routes.js';
import { gateHandlers } from './features/gate/routes.js';
import { ingressHandlers } from './features/ingress/routes.js';
import type { KeyRing } from './features/ingress/sealing.js';
import { inventoryHandlers } from './features/inventory/routes.js';
import { insertManagerHead } from './features/inventory/rows.js';
import { type LargeReportTaker, swarmObservationHandler } from './features/observation/routes.js';
import { firstRuntime, insertRuntime } from './features/phase/rows.js';
import { scopeHandlers } from './features/scope/routes.js';
import { insertScopeHeads } from './features/scope/rows.js';
import { preparedVolumeHandoffsHandler, volumeHandoffHandlers } from './features/volume-handoff/routes.js';
import { deriveAgain, initializeVolumeHandoffs } from './features/volume-handoff/steps.js';
import { sparkWatchHandler } from './features/watch/routes.js';
import { Watch } from './features/watch/watch.js';
import { bindOwnerMethods, bindSparkEndpoint, createGatekeeping } from './http/bind.js';
import { bindDocumentation } from './http/documentation.js';
import { bindHealth, type ProcessState } from './http/health.js';
import type { OwnerHandlers } from './http/owner-handlers.js';
import { createServer, type ServerOptions } from './http/server.js';
import { bindTypedRequest } from './http/typed-request.js';

export interface AppOptions {
  readonly server: ServerOptions;
  readonly process: ProcessState;
  /** Where large reports are taken: worker threads, see `report-workers.ts`. */
  readonly takeLargeReport: LargeReportTaker;
  /** Key-encryption keys, the sealing one first; empty where none is configured. */
  readonly keyRing: KeyRing;
  /** Serve the API's description and a page that shows it; true where it is not said. */
  readonly docs?: boolean;
}

/** The server, complete but not listening. The tests use this very function. */
export function createApp(deps: Deps, options: AppOptions): FastifyInstance {
  const app = createServer(options.server);
  const keeping = createGatekeeping(app, deps);
  bindHealth(app, deps, options.process);
  const watch = new Watch(deps);
  app.addHook('preClose', () => watch.close());
  const handlers: OwnerHandlers = {
    ...ownerHandlers,
    ...ingressHandlers(options.keyRing),
    watchFleetCutover: (_deps, actor, input) => watch.watch(actor, input),
  };
  bindOwnerMethods(app, deps, keeping, handlers);
  bindTypedRequest(app, deps, keeping, handlers);
  bindSparkEndpoint(app, deps, keeping, 'swarmObservation', swarmObservationHandler(deps, options.takeLargeReport));
  bindSparkEndpoint(app, deps, keeping, 'fleetCutoverWatch', sparkWatchHandler(watch));
  bindSparkEndpoint(app, deps, keeping, 'fleetCutoverPreparedVolumeHandoffs', preparedVolumeHandoffsHandler(deps));
  if (options.docs ?? true) bindDocumentation(app);
  return app;
}

const fleetHandlers = createFleetOperations({
  firstRuntime,
  initializers: [
    (tx, _cluster, runtime) => insertRuntime(tx, runtime),
    (tx, cluster) => insertScopeHeads(tx, cluster.clusterId),
    (tx, cluster) => insertManagerHead(tx, cluster.clusterId),
    initializeVolumeHandoffs,
  ],
  rebound: [
    (tx, cluster, nodeId) => deriveAgain(tx, cluster, { nodes: new Set([nodeId]), cluster: true, always: false }),
  ],
});

const ownerHandlers = {
  ...authHandlers,
  ...fleetHandlers,
  ...inventoryHandlers,
  ...scopeHandlers,
  ...volumeHandoffHandlers,
  ...admissionHandlers,
  ...gateHandlers,
} satisfies Partial<OwnerHandlers>;
