/** JSON Schema 2020-12 of the contract's schemas, with every named one as a component instead of a copy. */
import { KindGuard, type TSchema } from '@sinclair/typebox';
import * as coreflow from './coreflow.js';
import * as derivation from './derivation.js';
import * as fleet from './fleet.js';
import * as fleetMethods from './fleet-methods.js';
import * as cutoverMethods from './cutover-methods.js';
import * as gate from './gate.js';
import * as handoff from './handoff.js';
import * as health from './health.js';
import * as heldFence from './held-fence.js';
import * as ingress from './ingress.js';
import * as method from './method.js';
import * as mount from './mount.js';
import * as observation from './observation.js';
import * as problems from './problems.js';
import * as protocol from './protocol.js';
import * as runtime from './runtime.js';
import * as schema from './schema.js';
import * as scope from './scope.js';
import * as storageClaim from './storage-claim.js';
import * as typedRequest from './typed-request.js';
import * as watch from './watch.js';
import * as writeOff from './write-off.js';

export type JsonSchema = { readonly [keyword: string]: unknown };

const modules = [
  ...[schema, method, protocol, problems, gate, runtime, mount, storageClaim, handoff, heldFence, observation, scope],
  ...[derivation, ingress, coreflow, writeOff, fleet, fleetMethods, cutoverMethods, watch, health, typedRequest],
];

/**
 * A schema that the contract exports is a component under its exported name. Schemas are told apart by what they say, so
 * an optional member, which TypeBox copies, is the same one; of two that say the same the first name counts.
 */
const namesByText = new Map<string, string>();
const textsByName = new Map<string, string>();
for (const exports of modules) {
  for (const [name, value] of Object.entries(exports as Record<string, unknown>)) {
    if (KindGuard.IsSchema(value)) nameSchema(name, value);
  }
}

function nameSchema(name: string, value: TSchema): void {
  const text = JSON.stringify(value);
  if ((textsByName.get(name) ?? text) !== text) throw new Error(`two schemas of the contract are called ${name}`);
  textsByName.set(name, text);
  if (!namesByText.has(text)) namesByText.set(text, name);
}

/** Collects the components that a document needs. */
export class ComponentSchemas {
  readonly #components = new Map<string, JsonSchema>();

  /** Of a named schema the reference to its component, of another one its own text with references in it. */
  schema(value: TSchema): JsonSchema {
    const name = namesByText.get(JSON.stringify(value));
    return name === undefined ? this.#inline(value) : this.component(name, value);
  }

  /** Makes a schema a component under this name. */
  component(name: string, value: TSchema): JsonSchema {
    if (!this.#components.has(name)) {
      // Its place is taken before its parts are looked at.
      this.#components.set(name, {});
      this.#components.set(name, this.#inline(value));
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  /** In alphabetical order, so that the document is the same whatever was asked for first. */
  all(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.#components].sort(([left], [right]) => (left < right ? -1 : 1)));
  }

  #inline(value: TSchema): JsonSchema {
    const { properties, items, anyOf, ...keywords } = value as TSchema & {
      properties?: Record<string, TSchema>;
      items?: TSchema;
      anyOf?: TSchema[];
    };
    const texts = anyOf?.map((each) => each['const'] as unknown);
    return {
      ...plain(keywords),
      ...(properties === undefined ? {} : { properties: this.#each(properties) }),
      ...(items === undefined ? {} : { items: this.schema(items) }),
      ...(anyOf === undefined
        ? {}
        : texts?.every((text) => typeof text === 'string')
          ? { type: 'string', enum: texts }
          : { anyOf: anyOf.map((each) => this.schema(each)) }),
    };
  }

  #each(properties: Record<string, TSchema>): Record<string, JsonSchema> {
    return Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, this.schema(value)]));
  }
}

/** Without TypeBox's symbols, and without the draft-7 keyword of its tuples: the empty ones here need none. */
function plain(keywords: Readonly<Record<string, unknown>>): JsonSchema {
  const { additionalItems: _, ...kept } = JSON.parse(JSON.stringify(keywords)) as Record<string, unknown>;
  return kept;
}
