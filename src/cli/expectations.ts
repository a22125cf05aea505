/** The references that a mutation compares against: read from the service, or pinned by whoever decided on one. */
import { Option } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import { methods, type MethodResponse, type TMethodName } from '../contract/methods.js';
import { type Reference, referenceOf } from '../contract/schema.js';
import type { JsonObject } from '../contract/strict-json.js';
import { UsageError } from './output.js';
import { parseReference, type WrittenReference } from './reference-text.js';

/** What is current, as far as it is asked for. `given` is the request's part that names what the mutation is about. */
interface Facts {
  readonly client: AdministratorClient;
  readonly clusterId: string;
  readonly given: JsonObject;
  state(): Promise<MethodResponse<'readFleetCutoverState'>>;
}

/** How each member of a request that is an expectation is read. */
const readers = {
  runtime: async ({ state }) => referenceOf((await state()).runtime),
  scope: async ({ state }) => (await state()).scope,
  targetSet: async ({ state }) => (await state()).targetSet,
  inventory: async ({ state }) => (await state()).managerSnapshot,
  expectedScope: async ({ state }) => (await state()).scope,
  expectedTargetSet: async ({ state }) => (await state()).targetSet,
  expectedAggregate: async ({ state }) => {
    const { aggregate } = await state();
    return aggregate === null ? null : referenceOf(aggregate);
  },
  expectedSpec: async (facts) => {
    try {
      return await currentSpec(facts);
    } catch (error) {
      if (error instanceof ProblemError && error.code === 'record-unknown') return null;
      throw error;
    }
  },
  heldSpec: (facts) => currentSpec(facts),
  expectedDesignation: async ({ client, clusterId }) =>
    referenceOf((await client.readFleetCutoverIngressDesignation({ clusterId, designation: null })).designation),
} as const satisfies Record<string, (facts: Facts) => Promise<Reference | null>>;

async function currentSpec({ client, clusterId, given }: Facts): Promise<Reference> {
  const serviceId = String(given['serviceId']);
  return referenceOf((await client.readServiceSpec({ clusterId, serviceId, generation: null })).spec);
}

export type ExpectationKey = keyof typeof readers;

const isExpectation = (key: string): key is ExpectationKey => Object.hasOwn(readers, key);

/** Members of the method's request that are expectations. */
export function expectationsOf(method: TMethodName): ExpectationKey[] {
  return Object.keys(methods[method].request.properties).filter(isExpectation);
}

/** The word for one on the command line: `expectedAggregate` is `aggregate`. */
export function expectationName(key: ExpectationKey): string {
  const name = key.replace(/^(expected|held)/, '');
  return name.charAt(0).toLowerCase() + name.slice(1);
}

export type Pins = Readonly<Record<string, WrittenReference | null>>;

/** `--expect NAME=[ID:]GENERATION:DIGEST` or `NAME=none`, once for each. */
export function expectOption(keys: readonly ExpectationKey[]) {
  const names = keys.map(expectationName);
  return new Option(
    '--expect <name=reference>',
    `demand that this is current, as GENERATION:DIGEST or none: ${names.join(', ')}; what isn’t pinned is read`,
  )
    .default({} as Pins, 'what is read')
    .argParser((text: string, pins: Pins): Pins => {
      const [, name = '', written = ''] = /^(\w+)=(.*)$/.exec(text) ?? [];
      const reference = parseReference(written);
      if (!names.includes(name) || reference === undefined)
        throw new UsageError(
          `--expect has to be NAME=GENERATION:DIGEST or NAME=none, where NAME is one of: ${names.join(', ')}`,
        );
      if (Object.hasOwn(pins, name)) throw new UsageError(`--expect names ${name} twice`);
      return { ...pins, [name]: reference };
    });
}

interface Asked {
  readonly client: AdministratorClient;
  readonly method: TMethodName;
  readonly clusterId: string;
  readonly given: JsonObject;
  readonly pins: Pins;
}

/** The method's expectations that `given` doesn't have. Throws UsageError where there is nothing to expect yet. */
export async function readExpectations(asked: Asked): Promise<Record<string, Reference | null>> {
  const { client, clusterId, given, method, pins } = asked;
  let known: Promise<MethodResponse<'readFleetCutoverState'>> | undefined;
  const facts: Facts = {
    client,
    clusterId,
    given,
    state: () => (known ??= client.readFleetCutoverState({ clusterId })),
  };
  const keys = expectationsOf(method).filter((key) => !Object.hasOwn(given, key));
  const found: Record<string, Reference | null> = {};
  for (const key of keys) {
    const name = expectationName(key);
    const pin = Object.hasOwn(pins, name) ? pins[name] : undefined;
    found[key] = pin === undefined ? await readers[key](facts) : await pinned(name, pin, () => readers[key](facts));
    if (found[key] === null && !takesNull(method, key))
      throw new UsageError(`the cluster has no accepted ${words[key] ?? name} yet, and this needs one`);
  }
  return found;
}

const words: Partial<Record<ExpectationKey, string>> = {
  targetSet: 'targets',
  inventory: 'inventory (no manager has reported)',
};

/** The id of a record never changes, so that generation and digest are enough where there is one. */
async function pinned(
  name: string,
  pin: WrittenReference | null,
  read: () => Promise<Reference | null>,
): Promise<Reference | null> {
  if (pin === null) return null;
  const id = pin.id ?? (await read())?.id;
  if (id === undefined) throw new UsageError(`--expect names a ${name}, and there is none yet: ${name}=none`);
  return { id, generation: pin.generation, digest: pin.digest };
}

function takesNull(method: TMethodName, key: ExpectationKey): boolean {
  const schema = (methods[method].request.properties as Record<string, { anyOf?: { type?: string }[] }>)[key];
  return schema?.anyOf?.some((each) => each.type === 'null') === true;
}

/** Pins against a request that is repeated as it was. Throws UsageError where it expects something else. */
export function demandPins(method: TMethodName, request: JsonObject, pins: Pins): void {
  for (const key of expectationsOf(method)) {
    const name = expectationName(key);
    if (!Object.hasOwn(pins, name)) continue;
    const pin = pins[name] ?? null;
    const sent = (request[key] ?? null) as Reference | null;
    const same = pin === null || sent === null ? pin === sent : isPinned(pin, sent);
    if (!same) throw new UsageError(`the first attempt under this mutation id expected another ${name}`);
  }
}

function isPinned(pin: WrittenReference, sent: Reference): boolean {
  return (pin.id ?? sent.id) === sent.id && pin.generation === sent.generation && pin.digest === sent.digest;
}
