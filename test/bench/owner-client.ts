/** An administrator's calls over one kept connection each: what they cost is the service's, not the client's. */
import { Pool } from 'undici';
import { methodPath } from '../../src/contract/method.js';
import { methods, type MethodRequest, type MethodResponse, type TMethodName } from '../../src/contract/methods.js';

export interface OwnerClient {
  readonly url: string;
  done<N extends TMethodName>(method: N, body: MethodRequest<N>): Promise<MethodResponse<N>>;
  close(): Promise<void>;
}

export function createOwnerClient(url: string, token: string): OwnerClient {
  const pool = new Pool(url, {
    connections: 4,
    keepAliveTimeout: 1_000,
    keepAliveMaxTimeout: 1_000,
    headersTimeout: 120_000,
    bodyTimeout: 120_000,
  });
  return {
    url,
    done: async (method, request) => {
      const { statusCode, body } = await pool.request({
        path: methodPath(methods[method]),
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify(request),
      });
      const text = await body.text();
      if (statusCode !== 200) throw new Error(`${method}: ${statusCode} ${text}`);
      return JSON.parse(text) as never;
    },
    close: () => pool.close(),
  };
}
