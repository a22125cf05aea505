/**
 * What the collectors ask an engine. A source answers like a real engine: a status other than 200 is a failure, whole
 * and honest, never an empty list.
 */
import type { Static, TSchema } from '@sinclair/typebox';
import { type TypeCheck, TypeCompiler } from '@sinclair/typebox/compiler';
import {
  EngineContainer,
  EngineContainerList,
  EngineImageList,
  EngineInfo,
  EngineNodeList,
  EngineServiceList,
  EngineTaskList,
  EngineVolumeList,
  type IEngineContainer,
  type IEngineImage,
  type IEngineInfo,
  type IEngineNode,
  type IEngineService,
  type IEngineTask,
  type IEngineVolume,
} from './answers.js';
import { CensusFailure } from './census-failure.js';

/**
 * One engine, read only. Every method throws `CensusFailure`: `engine-unreachable`, `timeout` (also when `signal`
 * aborts), `truncated` for an answer beyond the source's bound, `engine-error` for every other answer than the asked
 * one.
 */
export interface DockerSource {
  info(signal: AbortSignal): Promise<IEngineInfo>;
  /** Ids of all containers in any state. */
  containerIds(signal: AbortSignal): Promise<string[]>;
  /** One container, or null where the engine has none of that id (404). */
  container(id: string, signal: AbortSignal): Promise<IEngineContainer | null>;
  volumes(signal: AbortSignal): Promise<IEngineVolume[]>;
  images(signal: AbortSignal): Promise<IEngineImage[]>;
  /** Managers only, as the next two: an engine that is no manager answers 503. */
  nodes(signal: AbortSignal): Promise<IEngineNode[]>;
  services(signal: AbortSignal): Promise<IEngineService[]>;
  tasks(signal: AbortSignal): Promise<IEngineTask[]>;
}

export interface EngineRequest {
  /** Path below the API version, e.g. `/containers/json`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
}

export interface EngineAnswer {
  readonly status: number;
  /** The whole body as UTF-8 JSON. */
  readonly body: Uint8Array;
}

/** Sends one GET. Throws `CensusFailure`: `engine-unreachable`, `timeout` or `truncated`. */
export type EngineGet = (request: EngineRequest, signal: AbortSignal) => Promise<EngineAnswer>;

/** Typed and checked reading over whatever sends the requests. */
export function sourceOver(get: EngineGet): DockerSource {
  const read = async <T>(request: EngineRequest, answer: Answer<T>, signal: AbortSignal): Promise<T> => {
    const found = await readUnlessMissing(get, request, answer, signal);
    if (found === null) throw new CensusFailure('engine-error', `GET ${request.path} answered 404`);
    return found;
  };
  return {
    info: (signal) => read({ path: '/info' }, infoAnswer, signal),
    containerIds: async (signal) => {
      const list = await read({ path: '/containers/json', query: { all: '1' } }, containerListAnswer, signal);
      return list.map((container) => container.Id);
    },
    container: (id, signal) =>
      readUnlessMissing(get, { path: `/containers/${encodeURIComponent(id)}/json` }, containerAnswer, signal),
    volumes: async (signal) => {
      const list = await read({ path: '/volumes' }, volumeListAnswer, signal);
      // The engine leaves a driver's volumes out, and warns, when the driver can't list them: that is no whole list.
      if ((list.Warnings ?? []).length > 0)
        throw new CensusFailure('engine-error', 'GET /volumes answered with warnings');
      return list.Volumes ?? [];
    },
    images: (signal) => read({ path: '/images/json' }, imageListAnswer, signal),
    nodes: (signal) => read({ path: '/nodes' }, nodeListAnswer, signal),
    services: (signal) => read({ path: '/services' }, serviceListAnswer, signal),
    tasks: (signal) => read({ path: '/tasks' }, taskListAnswer, signal),
  };
}

async function readUnlessMissing<T>(
  get: EngineGet,
  request: EngineRequest,
  answer: Answer<T>,
  signal: AbortSignal,
): Promise<T | null> {
  if (signal.aborted) throw new CensusFailure('timeout', `GET ${request.path} was not sent in time`);
  const { status, body } = await get(request, signal);
  if (status === 404) return null;
  if (status !== 200) throw new CensusFailure('engine-error', `GET ${request.path} answered ${status}`);
  return parseAnswer(request.path, body, answer);
}

/** Parses and checks one body; `path` is only for the message. Throws `CensusFailure` with `engine-error`. */
export function parseAnswer<T>(path: string, body: Uint8Array, answer: Answer<T>): T {
  let value: unknown;
  try {
    value = JSON.parse(utf8.decode(body));
  } catch {
    throw new CensusFailure('engine-error', `GET ${path} answered no JSON`);
  }
  const errorPath = answer(value);
  if (errorPath !== null) {
    throw new CensusFailure('engine-error', `GET ${path} answered an unknown shape at ${errorPath}`);
  }
  return value as T;
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Where a value differs from the answer `T`, without the keys that the value itself chose, or null where it fits. */
export type Answer<T> = ((value: unknown) => string | null) & { readonly shape?: T };

/** The check of one answer's shape. */
export function answerOf<S extends TSchema>(schema: S): Answer<Static<S>> {
  let checker: TypeCheck<S> | undefined;
  return (value) => {
    checker ??= TypeCompiler.Compile(schema);
    if (checker.Check(value)) return null;
    const path = checker.Errors(value).First()?.path ?? '';
    return path === '' ? '/' : path.split('/').map(shownKey).join('/');
  };
}

/** Field names of the Engine API and array indexes; any other key is a label or an option name. */
function shownKey(key: string): string {
  return /^(?:[A-Z][A-Za-z]{0,31}|\d{1,6})?$/.test(key) ? key : '*';
}

const infoAnswer = answerOf(EngineInfo);
const containerListAnswer = answerOf(EngineContainerList);
const containerAnswer = answerOf(EngineContainer);
const volumeListAnswer = answerOf(EngineVolumeList);
const imageListAnswer = answerOf(EngineImageList);
const nodeListAnswer = answerOf(EngineNodeList);
const serviceListAnswer = answerOf(EngineServiceList);
const taskListAnswer = answerOf(EngineTaskList);
