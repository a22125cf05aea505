/**
 * What to do next about each refusal. Commands stand in backticks as they are typed after `fleet-cutover`; a test looks each
 * of them up in the program.
 */
import { type TProblemCode } from '../contract/problems.js';

const anew = 'then run the command again, without --mutation-id';
const stale = `somebody changed it meanwhile: look at \`state\`, decide again, ${anew}`;
const lookUp = (command: string) => `look it up with \`${command}\``;
const correct = 'correct what is named above; nothing was changed';

export const advice: Readonly<Record<TProblemCode, string>> = {
  // 400
  'body-invalid-json': 'what arrived was not what was sent: look for a proxy in between that changes requests',
  'body-schema': 'correct the request; where it came from a command of its own, service and program differ in version',
  // 401, 403
  'credential-missing':
    'put a token into FLEET_CUTOVER_TOKEN or name its file with --token-file; `config show` says what is used',
  'credential-refused':
    '`config show` says which token is used; use the newest one: an administrator rotates a lost one with `token rotate`, ' +
    'and on the host `host bootstrap --additional` makes one',
  'role-refused': 'use the token of an administrator',
  'node-quarantined': 'find out which two reporters are live, end one, then `node release-quarantine`',
  'node-revoked': 'its credentials are revoked for good: register another node with `node register`',
  'node-written-off': 'nothing: what is written off stays so; register another node with `node register`',
  // 404, 405, 408
  'route-unknown':
    'the service does not know this method: it is older or newer than this program, or the URL has a wrong path',
  'cluster-unknown': 'list the clusters of this token’s organization with `cluster list`',
  'node-unknown': lookUp('node list'),
  'service-unknown': lookUp('service list'),
  'credential-unknown': lookUp('credential list'),
  'record-unknown': 'nothing is there under this name, or not yet: `state` says which records there are',
  'page-unknown': 'the number of pages is in `aggregate show`; the first one is 0',
  'relay-unknown': 'name the relay first with `relay register`',
  'method-not-allowed': 'call the service itself: something in between has changed the request',
  'request-timeout': 'repeat the same command with the same mutation id; the way to the service is slow',
  // 409
  'runtime-stale': stale,
  'scope-stale': stale,
  'target-set-stale': stale,
  'aggregate-stale': stale,
  'spec-stale': `somebody changed it meanwhile: look at \`spec show\`, decide again, ${anew}`,
  'inventory-stale':
    'wait for the next complete report of a manager; `inventory show` and `blockers` say what is there',
  'write-off-stale':
    'read the proposal with `explain` and confirm exactly that one with --confirm, or propose it first',
  'designation-stale': `look at \`ingress show\`, decide again, ${anew}`,
  'cluster-exists': 'choose another id, or look at the one that is there with `cluster show`',
  'node-exists': 'choose another id, or look at the one that is there with `node list`',
  'principal-exists': 'its token is rotated with `token rotate`; `credential list` names it',
  'swarm-node-taken': 'two nodes report one swarm node: compare them in `node list`, and end the wrong agent',
  'swarm-node-changed': 'if the node was made anew on purpose, bind it with `node confirm-rejoin`',
  'swarm-mismatch':
    'the node is in another swarm than the cluster: compare `cluster show` with what the node is a member of',
  'sequence-stale': 'restart the agent: it begins a new session',
  'reporter-replaced': 'two processes report for this node: end one of them, then `node release-quarantine`',
  // 410, 413, 415
  'pin-expired': 'read what is current: leave out what pins the old revision',
  'pin-unknown': 'the reference is of another cluster, or was never accepted: `state` has the current ones',
  'cursor-invalid': 'begin the list anew, without a cursor',
  'body-too-large': 'send less at once: a smaller document, or the list in parts',
  'media-type': 'call the service itself: something in between has changed the request',
  // 422
  'mutation-id-reused':
    'use a new mutation id for a new intent; a repeat has to be exactly the first request, by the same caller',
  'gate-unmet': '`explain` says what is missing, on what evidence, and who acts next',
  'phase-order': '`state` says the phase; only the one that follows can be advanced to',
  'phase-refused': '`state` says the phase; this act is for another one, which `explain` shows the way to',
  'write-off-refused': 'a proposal is confirmed by another administrator, once; `explain` lists all write-offs',
  'designation-other-service': '`ingress show` names the designated service: only its credential can be rotated',
  'service-retired': 'a retired service does not come back: use a live one of `service list`',
  'spec-not-held': 'write a new revision with `spec put`, which is held',
  'ports-configured': 'write a revision without published ports with `spec put`',
  'ports-observed':
    'end what the service runs under Pallet on the nodes that are named, and wait for their next report',
  'ports-unknown': 'wait for the next report of the nodes that are named; `node list` says when each reported last',
  'sealing-unavailable': 'the operator sets KEY_ENCRYPTION_KEYS_FILE and restarts the service',
  'batch-refused': correct,
  'scope-refused': correct,
  'target-set-refused': correct,
  'spec-refused': correct,
  'fleet-refused': correct,
  'last-administrator':
    'issue another administrator’s token first with `token issue`, or on the host use `host revoke-credential`',
  'quarantine-absent': 'nothing: the node is not quarantined; `node list` shows its state',
  'rejoin-absent': 'nothing to confirm: `node list` shows what the node reports as',
  // 426, 429
  'protocol-unsupported': 'run the version of this program that speaks the service’s protocol',
  'rate-limited': 'too many refused tokens came from this address: wait, correct the token, repeat',
  // 5xx
  'record-corrupt': 'call the operator: a stored record was changed behind the service; on the host `verify` names it',
  internal: 'call the operator: the service’s log says why; then repeat the same command with the same mutation id',
  'outcome-unknown': 'repeat the same command with the same mutation id; the answer then tells what became of it',
  unavailable: 'repeat the same command later, a change with the same mutation id',
};
