import { Secret } from '../../src/secret.js';

/** The same login on another database of the server. */
export function onDatabase(url: Secret, database: string): Secret {
  const changed = new URL(url.reveal());
  changed.pathname = `/${database}`;
  return new Secret(changed.href);
}

/** The same database under another login. */
export function onLogin(url: Secret, user: string, password: string): Secret {
  const changed = new URL(url.reveal());
  changed.username = user;
  changed.password = password;
  return new Secret(changed.href);
}
