/**
 * A row that must exist once its owner does: look-ups of a cluster's heads give undefined where there is no such cluster,
 * so that they can be sent together with the look-up of the cluster itself.
 */
export function present<T>(row: T | undefined): T {
  if (row === undefined) throw new Error('a row that belongs to an existing owner is missing');
  return row;
}
