/**
 * Text that a machine or a stranger named, for a terminal, a table or a comment: every control character, among them line
 * ends and escape sequences, becomes U+FFFD. Nothing that is printed like this can end its line.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu, '\ufffd');
}
