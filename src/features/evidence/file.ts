/** Evidence files on the disk: written whole or not at all, read line by line. */
import { randomBytes } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { link, open, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PassThrough, Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import { freeUnzippedBytes, maximumBytes, maximumLineBytes, maximumZipRatio } from './format.js';
import { DamagedFileError, type EvidenceLine, NoEvidenceError } from './load.js';

/** The file that is being written. */
export interface NewFile {
  /** Begins anew. */
  write(chunks: AsyncIterable<string>): Promise<void>;
}

/**
 * Makes `path` appear with what `fill` wrote, all of it on the disk, or leaves it as it was. Ends in `.gz`: gzipped. Readable
 * by its owner alone: an inventory of machines is nobody else's business. Throws `EEXIST` where the path exists by then.
 */
export async function writeWhole<T>(
  path: string,
  signal: AbortSignal,
  fill: (file: NewFile) => Promise<{ readonly value: T; readonly keep: boolean }>,
): Promise<T> {
  const temporary = `${path}.new-${randomBytes(6).toString('hex')}`;
  try {
    const { value, keep } = await fill({ write: (chunks) => writeTo(temporary, chunks, path.endsWith('.gz'), signal) });
    signal.throwIfAborted();
    if (keep) await publish(temporary, path);
    return value;
  } finally {
    await rm(temporary, { force: true });
  }
}

/** `flush`: all of it is on the disk before the file is closed. */
async function writeTo(
  path: string,
  chunks: AsyncIterable<string>,
  zipped: boolean,
  signal: AbortSignal,
): Promise<void> {
  const zip: Transform = zipped ? createGzip() : new PassThrough();
  const file = createWriteStream(path, { mode: 0o600, flush: true });
  await pipeline(Readable.from(chunks), zip, file, { signal });
}

/** A link, and not another name for what is there: evidence that appeared meanwhile is not replaced. */
async function publish(temporary: string, path: string): Promise<void> {
  await link(temporary, path);
  const directory = await open(dirname(path));
  await directory.sync().finally(() => directory.close());
}

/**
 * Lines of a file, zipped or not, which its first bytes tell. Throws `DamagedFileError` for what the file is to blame for,
 * `NoEvidenceError` for what is larger than evidence can be, and what the system throws where it can't be read.
 */
export async function* readLines(path: string): AsyncGenerator<EvidenceLine, void, undefined> {
  const zipped = await isZipped(path);
  const file = createReadStream(path, { highWaterMark: 262_144 });
  const source: Readable = zipped ? unzipped(file) : file;
  let parts: Buffer[] = [];
  let length = 0;
  let total = 0;
  let line = 1;
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      total += chunk.length;
      if (total > maximumBytes) throw new NoEvidenceError(`it has more than ${maximumBytes} bytes`);
      if (zipped && total > Math.max(freeUnzippedBytes, file.bytesRead * maximumZipRatio))
        throw new NoEvidenceError(`unzipped it is more than ${maximumZipRatio} times as large, which no evidence is`);
      let from = 0;
      for (;;) {
        const end = chunk.indexOf(0x0a, from);
        const part = chunk.subarray(from, end === -1 ? chunk.length : end);
        length += part.length;
        if (length > maximumLineBytes)
          throw new NoEvidenceError(`its line ${line} has more than ${maximumLineBytes} bytes`);
        parts.push(part);
        if (end === -1) break;
        yield { bytes: Buffer.concat(parts), ended: true };
        parts = [];
        length = 0;
        line += 1;
        from = end + 1;
      }
    }
  } catch (error) {
    throw isDamage(error) ? new DamagedFileError(`it can't be unzipped: ${error.message}`) : error;
  } finally {
    file.destroy();
    source.destroy();
  }
  if (length > 0) yield { bytes: Buffer.concat(parts), ended: false };
}

async function isZipped(path: string): Promise<boolean> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(2), 0, 2, 0);
    return bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b;
  } finally {
    await file.close();
  }
}

function unzipped(file: Readable): Readable {
  const gunzip = createGunzip();
  file.on('error', (error) => gunzip.destroy(error));
  return file.pipe(gunzip);
}

/** `Z_DATA_ERROR`, and `Z_BUF_ERROR` for a file that was cut. */
function isDamage(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && String(error.code).startsWith('Z_');
}
