/**
 * Knows every secret of the demonstration and everything that was shown, and tells where one of the former is in the latter.
 *
 * 1. A secret may be told in one place only: the field `secrets` of the first answer of what issued it. A replay's counts.
 * 2. Searched for are the text, the bytes that it stands for, and how either is written elsewhere: hexadecimal and base64.
 * 3. A finding names the place and whose secret it is, never the secret. Hashes of secrets are none.
 */
import type { IIssuedSecret } from '../contract/fleet.js';
import { Secret } from '../secret.js';

export class SecretCanary {
  /** Spellings by whose secret it is. */
  readonly #secrets = new Map<string, readonly string[]>();
  readonly #shown: { readonly place: string; readonly text: string }[] = [];

  get secretCount(): number {
    return this.#secrets.size;
  }

  get shownCount(): number {
    return this.#shown.length;
  }

  /** `owner`: whose secret it is, unlike every other's. Of an administrator's token the secret part counts. */
  learn(owner: string, secret: Secret): void {
    this.#secrets.set(owner, spellings(secret.reveal().split('.').at(-1) ?? ''));
  }

  show(place: string, text: string): void {
    this.#shown.push({ place, text });
  }

  /** Learns what a first answer tells once (1), and keeps all the rest as shown. */
  showAnswer(place: string, answer: unknown): void {
    const { secrets, ...rest } = answer as { secrets?: readonly IIssuedSecret[]; replayed?: boolean };
    if (secrets === undefined || rest.replayed === true) return this.show(place, JSON.stringify(answer));
    for (const { kind, credentialId, generation, secret } of secrets) {
      this.learn(`${kind} ${credentialId} generation ${generation}`, new Secret(secret));
    }
    this.show(place, JSON.stringify(rest));
  }

  /** Secrets in one text. */
  findIn(place: string, text: string): string[] {
    const searched = text.toLowerCase();
    return [...this.#secrets]
      .filter(([, spelled]) => spelled.some((spelling) => searched.includes(spelling)))
      .map(([owner]) => `${place}: ${owner}`);
  }

  /** Secrets in everything that was shown. */
  findInShown(): string[] {
    return this.#shown.flatMap(({ place, text }) => this.findIn(place, text));
  }
}

/** In lower case, without padding (2). */
function spellings(text: string): string[] {
  const written = (bytes: Buffer) => [bytes.toString('hex'), bytes.toString('base64'), bytes.toString('base64url')];
  const spelled = [text, ...written(Buffer.from(text)), ...written(Buffer.from(text, 'base64'))];
  return [...new Set(spelled.map((each) => each.replace(/=+$/, '').toLowerCase()))];
}
