import { isJsonObject, type JsonObject, parseStrictJson, StrictJsonError } from '../contract/strict-json.js';
import { UsageError } from './output.js';

/** One strict JSON object; `what` names the input in the message. Throws UsageError. */
export function parseObject(input: Uint8Array | string, what: string): JsonObject {
  try {
    const value = parseStrictJson(input);
    if (isJsonObject(value)) return value;
  } catch (error) {
    if (error instanceof StrictJsonError) throw new UsageError(`${what}: ${error.message}`);
    throw error;
  }
  throw new UsageError(`${what} is not a JSON object`);
}
