/** The table of methods: the whole owner API. Routes, typed client, documentation and coverage tests derive from it. */
import type { Static } from '@sinclair/typebox';
import { cutoverMethods } from './cutover-methods.js';
import { fleetMethods } from './fleet-methods.js';

export const methods = { ...fleetMethods, ...cutoverMethods } as const;

export type TMethodName = keyof typeof methods;
export type MethodRequest<N extends TMethodName> = Static<(typeof methods)[N]['request']>;
export type MethodResponse<N extends TMethodName> = Static<(typeof methods)[N]['response']>;

export const methodNames = Object.keys(methods) as TMethodName[];
export const mutationNames = methodNames.filter((name) => methods[name].mutation);
