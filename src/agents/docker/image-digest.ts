/** Which image a container runs, by content. */
import type { TSha256Digest } from '../../contract/digest.js';
import type { IEngineContainer, IEngineImage } from './answers.js';

const pinned = /@(sha256:[0-9a-f]{64})$/;

function digestOfReference(reference: string): TSha256Digest | null {
  return (pinned.exec(reference)?.[1] as TSha256Digest | undefined) ?? null;
}

/** The digest that the container's own image reference names (`name@sha256:…`), or null. */
export function pinnedDigest(container: IEngineContainer): TSha256Digest | null {
  return digestOfReference(container.Config.Image);
}

/** The one digest under which a registry knows the image; null where there is none or more than one. */
export function registryDigest(image: IEngineImage): TSha256Digest | null {
  const digests = new Set((image.RepoDigests ?? []).map(digestOfReference).filter((digest) => digest !== null));
  return digests.size === 1 ? ([...digests][0] ?? null) : null;
}
