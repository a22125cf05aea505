/** An administrator's client whose answers and refusals the canary gets to see. */
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import { methodNames } from '../contract/methods.js';
import type { SecretCanary } from './secret-canary.js';

export function recordedClient(client: AdministratorClient, canary: SecretCanary): AdministratorClient {
  const call: AdministratorClient['call'] = async (method, request, options) => {
    try {
      const answer = await client.call(method, request, options);
      canary.showAnswer(`answer of ${method}`, answer);
      return answer;
    } catch (error) {
      if (error instanceof ProblemError) canary.show(`refusal of ${method}`, JSON.stringify(error.document));
      throw error;
    }
  };
  const calls = methodNames.map((name) => [name, (request: never, options?: object) => call(name, request, options)]);
  return { ...(Object.fromEntries(calls) as AdministratorClient), call, close: () => client.close() };
}
