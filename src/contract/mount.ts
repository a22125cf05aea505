/** Identity of one observed mount: commits to Docker's exact bytes, never to physical lineage. */
import type { Static } from '@sinclair/typebox';
import { bareDigest, bytesDigest } from './digest.js';
import { closed, Digest } from './schema.js';

export const ObservedMount = closed({
  /** SHA-256 of the raw bytes of the container inspect's `Mounts[].Source`. */
  sourceDigest: Digest,
  /** SHA-256 of the raw bytes of `Mounts[].Destination`. */
  targetDigest: Digest,
  /** Bare digest over `{ sourceDigest, targetDigest }`. */
  mountIdentityDigest: Digest,
});
export type IFleetCutoverObservedMount = Static<typeof ObservedMount>;

export function observedMountOf(source: string, destination: string): IFleetCutoverObservedMount {
  const sourceDigest = bytesDigest(source);
  const targetDigest = bytesDigest(destination);
  return { sourceDigest, targetDigest, mountIdentityDigest: bareDigest({ sourceDigest, targetDigest }) };
}

export function observedMountErrors(mount: IFleetCutoverObservedMount): string[] {
  const { sourceDigest, targetDigest } = mount;
  return bareDigest({ sourceDigest, targetDigest }) === mount.mountIdentityDigest
    ? []
    : ['/observedMount/mountIdentityDigest does not join source and target'];
}

const anonymousName = /^[0-9a-f]{64}$/;

/**
 * Whether the volume may be anonymous: engines name those, and only those, with 64 hex digits (`GenerateRandomID` in Docker's
 * `volume/service/service.go`). A person may choose such a name, too; the label `com.docker.volume.anonymous` would tell them
 * apart, but older engines set none.
 */
export function isAnonymousVolumeName(name: string): boolean {
  return anonymousName.test(name);
}

/** Filesystem types of the local driver whose data is not on the node. */
export const networkFilesystems: ReadonlySet<string> = new Set([
  'nfs',
  'nfs4',
  'cifs',
  'smb3',
  'smbfs',
  'ceph',
  'glusterfs',
  '9p',
]);
