/** The protocol offer that every Spark and session message carries. */
import type { Static } from '@sinclair/typebox';
import { closed, NaturalInteger } from './schema.js';

export const ProtocolOffer = closed({ major: NaturalInteger, minor: NaturalInteger });
export type IProtocolOffer = Static<typeof ProtocolOffer>;

/** What this build speaks. */
export const supportedProtocol: IProtocolOffer = Object.freeze({ major: 32, minor: 15 });

/** Another major is refused with this HTTP status and the supported offer. */
export const protocolRefusalHttpStatus = 426;

/** The offer that an answer carries: a lower minor is answered at that minor; null for another major. */
export function negotiateProtocol(offer: IProtocolOffer): IProtocolOffer | null {
  if (offer.major !== supportedProtocol.major) return null;
  return { major: supportedProtocol.major, minor: Math.min(offer.minor, supportedProtocol.minor) };
}
