import { InvalidArgumentError } from '@commander-js/extra-typings';

/** A generation. Throws InvalidArgumentError. */
export function parseGeneration(text: string): number {
  const value = parseIndex(text);
  if (value === 0) throw new InvalidArgumentError('Generations begin with 1.');
  return value;
}

/** A number from 0. Throws InvalidArgumentError. */
export function parseIndex(text: string): number {
  const value = Number(text);
  if (!/^(0|[1-9]\d*)$/.test(text) || !Number.isSafeInteger(value)) throw new InvalidArgumentError('A whole number.');
  return value;
}
