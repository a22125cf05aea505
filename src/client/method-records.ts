/** The checks of each method's request and answer, compiled when a method is first called. */
import type { Static } from '@sinclair/typebox';
import { type MethodRequest, type MethodResponse, methods, type TMethodName } from '../contract/methods.js';
import { type ContractRecord, defineRecord } from '../contract/record.js';

export interface MethodRecords<N extends TMethodName> {
  readonly request: ContractRecord<MethodRequest<N>>;
  readonly response: ContractRecord<MethodResponse<N>>;
}

const known = new Map<TMethodName, unknown>();

export function methodRecords<N extends TMethodName>(method: N): MethodRecords<N> {
  const found = known.get(method) as MethodRecords<N> | undefined;
  if (found !== undefined) return found;
  const made = defineMethodRecords(method);
  known.set(method, made);
  return made;
}

function defineMethodRecords<N extends TMethodName>(method: N): MethodRecords<N> {
  const { request, response } = methods[method];
  const typeName = `I${method.charAt(0).toUpperCase()}${method.slice(1)}`;
  return {
    request: defineRecord(`${typeName}Request`, request) as ContractRecord<Static<typeof request>>,
    response: defineRecord(`${typeName}Response`, response) as ContractRecord<Static<typeof response>>,
  } as unknown as MethodRecords<N>;
}
