import type { MethodRequest, MethodResponse, TMethodName } from '../contract/methods.js';
import type { Refused } from '../contract/problems.js';
import type { Deps } from '../deps.js';
import type { AdministratorActor } from '../features/auth/actor.js';

/** Does one owner method. The actor is authenticated and has the method's role, the input has the method's shape. */
export type OwnerHandler<N extends TMethodName> = (
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<N>,
) => Promise<MethodResponse<N> | Refused>;

/** A handler for every method of the names; `OwnerHandlers` alone is the whole table. */
export type OwnerHandlers<Names extends TMethodName = TMethodName> = { readonly [N in Names]: OwnerHandler<N> };
