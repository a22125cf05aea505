/**
 * The description of the API as OpenAPI 3.1, derived from the table of methods and Spark's endpoints. Pure: the service
 * serves this very text at `/openapi.json`, and `fleet-cutover openapi` prints it.
 */
import type { TSchema } from '@sinclair/typebox';
import { ComponentSchemas, type JsonSchema } from './component-schemas.js';
import {
  SparkGetFleetCutoverPreparedVolumeHandoffsRequest,
  SparkGetFleetCutoverPreparedVolumeHandoffsResponse,
} from './handoff.js';
import { Health, Readiness } from './health.js';
import { sparkSwarmNodeContracts } from './limits.js';
import { methodPath, type OwnerMethod } from './method.js';
import {
  problemsOfEnvelope,
  problemsOfMethod,
  problemsOfSparkEndpoint,
  type TSparkEndpointName,
} from './method-problems.js';
import { methodNames, methods, type TMethodName } from './methods.js';
import { SparkSwarmObservationAcceptedReceipt, SparkSwarmObservationRequest } from './observation.js';
import { problemCatalogue, ProblemDocument, type TProblemCode } from './problems.js';
import { supportedProtocol } from './protocol.js';
import {
  maximumTypedRequestBytes,
  TypedRequestAnswer,
  typedRequestEndpoint,
  TypedRequestEnvelope,
} from './typed-request.js';
import { SparkWatchFleetCutoverRequest, SparkWatchFleetCutoverResponse } from './watch.js';

export interface OpenApiDocument {
  readonly openapi: '3.1.1';
  readonly info: JsonSchema;
  readonly servers: readonly JsonSchema[];
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenApiOperation>>>>;
  readonly components: {
    readonly securitySchemes: JsonSchema;
    readonly headers: JsonSchema;
    readonly responses: Readonly<Record<string, JsonSchema>>;
    readonly schemas: Readonly<Record<string, JsonSchema>>;
  };
}

export interface OpenApiOperation {
  readonly operationId: string;
  readonly responses: Readonly<Record<string, JsonSchema>>;
  readonly [member: string]: unknown;
}

/** The package's; a test holds them together. */
export const apiVersion = '0.1.0';

export function openApiDocument(): OpenApiDocument {
  const parts = new Parts();
  const paths = {
    ...Object.fromEntries(
      methodNames.map((name) => [methodPath(methods[name]), { post: ownerOperation(parts, name) }]),
    ),
    ...Object.fromEntries(
      sparkNames.map((name) => [sparkSwarmNodeContracts[name].endpoint, { post: sparkOperation(parts, name) }]),
    ),
    [typedRequestEndpoint]: { post: envelopeOperation(parts) },
    '/health': { get: healthOperation(parts) },
    '/readiness': { get: readinessOperation(parts) },
  };
  return {
    openapi: '3.1.1',
    info,
    servers: [{ url: '/', description: 'This service' }],
    tags,
    paths,
    components: { securitySchemes, headers, responses: parts.responses(), schemas: parts.schemas.all() },
  };
}

/** The document's JSON, ending in a line feed. */
export function openApiText(): string {
  return `${JSON.stringify(openApiDocument(), null, 2)}\n`;
}

const info = {
  title: 'fleet-cutover',
  version: apiVersion,
  summary: 'Moves a fleet of stateful services from Docker Swarm to Pallet',
  description: [
    'Bodies are strict JSON: no key twice, no unknown key, nothing converted or filled in. References',
    '`{ id, generation, digest }` name one immutable record each.',
    '',
    'Mutations carry `mutationId`; the same request with the same id answers the recorded result. A refusal is a problem',
    'document (RFC 9457) with a stable `code`; `mutationOutcome` says whether anything was applied.',
  ].join('\n'),
  license: { name: 'MIT', identifier: 'MIT' },
};

const tags = [
  { name: 'fleet', description: 'Clusters, nodes, services, specs and credentials' },
  { name: 'fleetcutover', description: 'The cutover: evidence, handoffs, gates and phases' },
  {
    name: 'spark',
    description:
      `What agents send: protocol ${supportedProtocol.major}.${supportedProtocol.minor}, with the node’s id and token ` +
      'inside the body',
  },
  { name: 'envelope', description: 'The methods as `@api.global/typedrequest` calls them' },
  { name: 'service', description: 'The process itself' },
];

const securitySchemes = {
  bearer: {
    type: 'http',
    scheme: 'bearer',
    description: 'The token of an administrator or a read-only operator, `fc.<credential>.<secret>`',
  },
};

const headers = {
  'Retry-After': { description: 'Seconds after which to try again', schema: { type: 'string', pattern: '^[0-9]+$' } },
  'WWW-Authenticate': { description: 'How to authenticate', schema: { type: 'string', const: 'Bearer' } },
};

// Operations --------------------------------------------------------------------------------------------------------

function ownerOperation(parts: Parts, name: TMethodName): OpenApiOperation {
  const method: OwnerMethod = methods[name];
  const component = `${name.charAt(0).toUpperCase()}${name.slice(1)}`;
  return {
    operationId: name,
    tags: [method.namespace],
    summary: method.summary,
    description: ownerDescription(method),
    security: [{ bearer: [] }],
    'x-caller': method.caller,
    'x-mutation': method.mutation,
    'x-maximum-request-bytes': method.maximumRequestBytes,
    requestBody: parts.body(`${component}Request`, method.request),
    responses: {
      '200': parts.answer(
        method.mutation ? 'Done, or done before' : 'The answer',
        `${component}Response`,
        method.response,
      ),
      ...parts.problems(problemsOfMethod(name)),
    },
  };
}

function ownerDescription(method: OwnerMethod): string {
  const caller = method.caller === 'administrator' ? 'Administrators only.' : 'Administrators and read-only operators.';
  const mutation = method.mutation ? ' A mutation: audited, and replayed by its `mutationId`.' : '';
  return `${caller}${mutation} At most ${grouped(method.maximumRequestBytes)} bytes.`;
}

const sparkSchemas: Readonly<Record<TSparkEndpointName, { summary: string; request: TSchema; response: TSchema }>> = {
  swarmObservation: {
    summary: 'Takes a node’s report and makes it accepted evidence',
    request: SparkSwarmObservationRequest,
    response: SparkSwarmObservationAcceptedReceipt,
  },
  fleetCutoverPreparedVolumeHandoffs: {
    summary: 'One page of the complete aggregate, with the node’s own handoffs',
    request: SparkGetFleetCutoverPreparedVolumeHandoffsRequest,
    response: SparkGetFleetCutoverPreparedVolumeHandoffsResponse,
  },
  fleetCutoverWatch: {
    summary: 'Waits for the next change of the node’s cluster',
    request: SparkWatchFleetCutoverRequest,
    response: SparkWatchFleetCutoverResponse,
  },
};

const sparkNames = Object.keys(sparkSchemas) as TSparkEndpointName[];

function sparkOperation(parts: Parts, name: TSparkEndpointName): OpenApiOperation {
  const { maxRequestBytes, maxResponseBytes } = sparkSwarmNodeContracts[name];
  const { summary, request, response } = sparkSchemas[name];
  return {
    operationId: name,
    tags: ['spark'],
    summary,
    description:
      'The node authenticates with `nodeId` and `nodeToken` in the body. ' +
      `At most ${grouped(maxRequestBytes)} bytes; the answer has at most ${grouped(maxResponseBytes)}.`,
    security: [],
    'x-caller': 'node',
    'x-maximum-request-bytes': maxRequestBytes,
    'x-maximum-response-bytes': maxResponseBytes,
    requestBody: parts.body(undefined, request),
    responses: {
      '200': parts.answer('The answer', undefined, response),
      ...parts.problems(problemsOfSparkEndpoint(name)),
    },
  };
}

function envelopeOperation(parts: Parts): OpenApiOperation {
  return {
    operationId: 'typedrequest',
    tags: ['envelope'],
    summary: 'Any method of this document’s fleet and fleetcutover, named in the envelope',
    description:
      'The token stands in the `Authorization` header, in `authInfo.jwt`, or in `request.identity.jwt`; given more than ' +
      'once, it must be the same. The named method’s byte limit holds for `request`. A refused method is answered with ' +
      'status 200 and `error`: its `data` is the problem document. What is no envelope is answered with the problem’s ' +
      'own status. Spark’s endpoints are not carried.',
    security: [{ bearer: [] }, {}],
    'x-caller': 'named-method',
    'x-maximum-request-bytes': maximumTypedRequestBytes,
    requestBody: parts.body(undefined, TypedRequestEnvelope),
    responses: {
      '200': parts.answer('The method’s response, or its refusal', undefined, TypedRequestAnswer),
      ...parts.problems(problemsOfEnvelope),
    },
  };
}

function healthOperation(parts: Parts): OpenApiOperation {
  return {
    operationId: 'health',
    tags: ['service'],
    summary: 'The process is up',
    security: [],
    'x-caller': 'public',
    responses: { '200': parts.answer('It is', undefined, Health) },
  };
}

function readinessOperation(parts: Parts): OpenApiOperation {
  return {
    operationId: 'readiness',
    tags: ['service'],
    summary: 'The service can do its work: the database answers and its schema is this program’s',
    security: [],
    'x-caller': 'public',
    responses: {
      '200': parts.answer('It can', undefined, Readiness),
      '503': parts.answer('It can’t', undefined, Readiness),
    },
  };
}

/** 4,096 instead of 4096. */
function grouped(bytes: number): string {
  return bytes.toLocaleString('en-US');
}

// Parts -------------------------------------------------------------------------------------------------------------

class Parts {
  readonly schemas = new ComponentSchemas();
  readonly #responses = new Map<string, JsonSchema>();

  body(name: string | undefined, schema: TSchema): JsonSchema {
    return { required: true, content: { 'application/json': { schema: this.#schema(name, schema) } } };
  }

  answer(description: string, name: string | undefined, schema: TSchema): JsonSchema {
    return { description, content: { 'application/json': { schema: this.#schema(name, schema) } } };
  }

  /** One response per status; methods that are refused for the same reasons share it. */
  problems(codes: readonly TProblemCode[]): Record<string, JsonSchema> {
    const byStatus = new Map<string, TProblemCode[]>();
    for (const code of codes) {
      const status = String(problemCatalogue[code].status);
      byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
    }
    return Object.fromEntries([...byStatus].map(([status, same]) => [status, this.#problem(Number(status), same)]));
  }

  responses(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.#responses].sort(([left], [right]) => (left < right ? -1 : 1)));
  }

  #schema(name: string | undefined, schema: TSchema): JsonSchema {
    const found = this.schemas.schema(schema);
    return '$ref' in found || name === undefined ? found : this.schemas.component(name, schema);
  }

  #problem(status: number, codes: readonly TProblemCode[]): JsonSchema {
    const name = codes.join('.');
    if (!this.#responses.has(name)) this.#responses.set(name, this.#problemResponse(status, codes));
    return { $ref: `#/components/responses/${name}` };
  }

  #problemResponse(status: number, codes: readonly TProblemCode[]): JsonSchema {
    const schema = {
      allOf: [
        this.schemas.schema(ProblemDocument),
        { properties: { status: { const: status }, code: { enum: codes } }, required: ['status', 'code'] },
      ],
    };
    const header = status === 401 ? 'WWW-Authenticate' : status === 429 || status === 503 ? 'Retry-After' : undefined;
    return {
      description: codes.map((code) => `\`${code}\`: ${problemCatalogue[code].title}`).join('\n\n'),
      ...(header === undefined ? {} : { headers: { [header]: { $ref: `#/components/headers/${header}` } } }),
      content: { 'application/problem+json': { schema } },
    };
  }
}
