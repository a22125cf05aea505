/** The smallest value that at least this share (0..1) of the values does not exceed. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

/** Milliseconds as they are printed. */
export function rounded(value: number, digits = 2): number {
  return Number(value.toFixed(digits));
}
