/** Where the service is. */

/** A URL that the client does not take. The message never quotes it: credentials are written into URLs. */
export class ServiceUrlError extends Error {
  override readonly name = 'ServiceUrlError';
}

export interface ServiceUrl {
  /** Scheme, host and port. */
  readonly origin: string;
  /** Path in front of every route, without a slash at its end; empty for a service at the root. */
  readonly prefix: string;
}

/**
 * Takes a service's URL apart. Tokens travel on that connection: plain `http:` is only for this machine, unless
 * `allowPlainHttp` says that the network in between is trusted.
 *
 * @throws ServiceUrlError
 */
export function parseServiceUrl(url: string, options: { readonly allowPlainHttp?: boolean } = {}): ServiceUrl {
  if (!URL.canParse(url)) throw new ServiceUrlError('the service’s URL is not one');
  const { protocol, hostname, origin, pathname, username, password, search, hash } = new URL(url);
  if (protocol !== 'http:' && protocol !== 'https:')
    throw new ServiceUrlError('the service’s URL is not http or https');
  if (`${username}${password}${search}${hash}` !== '') {
    throw new ServiceUrlError('the service’s URL has credentials, a query or a fragment');
  }
  if (protocol === 'http:' && !isThisMachine(hostname) && options.allowPlainHttp !== true) {
    throw new ServiceUrlError('the service’s URL leads to another machine without https');
  }
  return { origin, prefix: pathname.replace(/\/+$/, '') };
}

function isThisMachine(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}
