/**
 * One line of a scope, merged from three sides: what the person's file was made for (`base`), the file (`mine`) and the scope
 * as it is now (`theirs`). Pure.
 *
 *  1. What the person has not changed is as the scope has it now: also gone, where the scope states it no more.
 *  2. What the person alone has changed stays as the person has it.
 *  3. Both changed to the same: nothing to decide.
 *  4. Both changed, and differently: a conflict, never confirmed. It shows theirs, or is open where theirs would let data go
 *     that the person's keeps.
 *  5. What lets data go and is not in the scope as it is now is confirmed only by a person who has seen that scope: in a
 *     file that was made for another one it is to be confirmed again. Such a file may be older than its own applying, after
 *     which somebody took the line back.
 *  6. Nothing unconfirmed becomes confirmed, but a proposal that the scope has answered since.
 */
export interface LineSides<T> {
  readonly base: T | undefined;
  readonly mine: { readonly value: T; readonly confirmed: boolean } | undefined;
  readonly theirs: T | undefined;
}

export interface LineRules<T> {
  same(left: T, right: T): boolean;
  /** It takes data out of what is handed over. */
  letsGo(value: T): boolean;
  /** The same line without what would decide it. */
  opened(value: T): T;
}

export type MergedLine<T> =
  /** By whom it is left out, where somebody had it. */
  | { readonly kind: 'absent'; readonly by: 'me' | 'them' | null }
  | { readonly kind: 'theirs' | 'mine' | 'again' | 'conflict'; readonly value: T; readonly confirmed: boolean };

/** @param moved the scope is another one than the file was made for */
export function mergeLine<T>({ base, mine, theirs }: LineSides<T>, rules: LineRules<T>, moved: boolean): MergedLine<T> {
  const same = (left: T | undefined, right: T | undefined) =>
    left === undefined || right === undefined ? left === right : rules.same(left, right);
  const asTheirs: MergedLine<T> =
    theirs === undefined
      ? { kind: 'absent', by: base === undefined ? null : 'them' }
      : { kind: 'theirs', value: theirs, confirmed: true };
  const conflict = (): MergedLine<T> => ({
    kind: 'conflict',
    value: undecided(mine?.value, theirs, rules),
    confirmed: false,
  });

  if (mine === undefined) {
    if (base === undefined || theirs === undefined) return asTheirs;
    return same(base, theirs) ? { kind: 'absent', by: 'me' } : conflict();
  }
  const { value, confirmed } = mine;
  if (!confirmed) {
    if (base === undefined) return theirs === undefined ? { kind: 'mine', value, confirmed } : asTheirs;
    if (same(theirs, base) || same(theirs, value)) return { kind: 'mine', value, confirmed };
    return theirs === undefined && same(value, base) ? asTheirs : conflict();
  }
  if (same(value, base) || same(value, theirs)) return asTheirs;
  if (!same(base, theirs)) return conflict();
  return moved && rules.letsGo(value)
    ? { kind: 'again', value, confirmed: false }
    : { kind: 'mine', value, confirmed: true };
}

function undecided<T>(mine: T | undefined, theirs: T | undefined, rules: LineRules<T>): T {
  const shown = (theirs ?? mine) as T;
  const other = theirs === undefined ? undefined : mine;
  return rules.letsGo(shown) && (other === undefined || !rules.letsGo(other)) ? rules.opened(shown) : shown;
}
