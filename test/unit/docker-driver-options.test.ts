import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { reduceDriverOptions, reportedOptionNames } from '../../src/agents/docker/driver-options.js';
import { reduceLabels } from '../../src/agents/docker/labels.js';

const sha256 = (text: string) => `sha256:${createHash('sha256').update(text).digest('hex')}`;

describe('driver options', () => {
  it('are null where there are none', () => {
    expect(reduceDriverOptions('local', null)).toBeNull();
    expect(reduceDriverOptions('local', undefined)).toBeNull();
    expect(reduceDriverOptions('local', {})).toBeNull();
  });

  it('keep of a network file system its type, its device as a digest, and names', () => {
    const options = {
      type: 'cifs',
      device: '//files/share',
      o: 'addr=192.0.2.7,username=bob,password=hunter2,vers=3.0,ro',
    };
    expect(reduceDriverOptions('local', options)).toEqual({
      type: 'cifs',
      deviceDigest: sha256('//files/share'),
      bindDevice: null,
      optionNames: ['addr', 'ro', 'vers'],
      otherOptions: 2,
    });
  });

  it('do not take the rest of a password with a comma for a name', () => {
    const reduced = reduceDriverOptions('local', { type: 'cifs', device: '//f/s', o: 'password=hun,ter2,=x,rw' });
    expect(reduced).toMatchObject({ optionNames: ['rw'], otherOptions: 3 });
    expect(JSON.stringify(reduced)).not.toMatch(/hun|ter2/);
  });

  it.each([
    ['bind', '/data'],
    ['rw,rbind', '/data'],
    ['ro,bind,nosuid', '/data'],
    ['bindings', null],
    ['bind=1', null],
    ['', null],
  ])('tell the device path of a local volume only for a bind: o=%s', (o, bindDevice) => {
    expect(reduceDriverOptions('local', { type: 'none', device: '/data', o })).toMatchObject({
      bindDevice,
      deviceDigest: sha256('/data'),
    });
    expect(reduceDriverOptions(null, { type: 'none', device: '/data', o })).toMatchObject({ bindDevice });
    expect(reduceDriverOptions('plugin', { device: '/data', o })).toMatchObject({ bindDevice: null, type: null });
  });

  it('of a plugin are counted, but for those whose names are known to be names', () => {
    expect(reduceDriverOptions('plugin', { size: '5GiB', replication: '3', type: 'gp3', token: 'hunter2' })).toEqual({
      type: null,
      deviceDigest: null,
      bindDevice: null,
      optionNames: ['size'],
      otherOptions: 3,
    });
  });

  it('fit the contract even when all names occur', () => {
    expect(reportedOptionNames.size).toBeLessThanOrEqual(32);
    const names = reduceDriverOptions('local', {
      o: [...reportedOptionNames, ...reportedOptionNames].join(','),
    })?.optionNames;
    expect(names).toEqual([...reportedOptionNames].sort());
  });
});

describe('labels', () => {
  it('tell the allow-listed ones, sorted, and digest the rest as sorted pairs', () => {
    const reduced = reduceLabels({
      zebra: '1',
      'com.docker.stack.namespace': 'shop',
      'auth.basic': 'bob:hunter2',
      'com.docker.stack.image': 'web:1',
    });
    expect(reduced.labels).toEqual([
      { key: 'com.docker.stack.image', value: 'web:1' },
      { key: 'com.docker.stack.namespace', value: 'shop' },
    ]);
    expect(reduced.otherLabelsDigest).toBe(sha256('[["auth.basic","bob:hunter2"],["zebra","1"]]'));
  });

  it('have no digest where nothing is left', () => {
    expect(reduceLabels(null)).toEqual({ labels: [], otherLabelsDigest: null });
    expect(reduceLabels({ 'serve.zone.role': 'ingress' }).otherLabelsDigest).toBeNull();
  });

  it('do not tell a value that is too long to be a role', () => {
    const value = 'x'.repeat(513);
    expect(reduceLabels({ 'serve.zone.role': value })).toEqual({
      labels: [],
      otherLabelsDigest: sha256(`[["serve.zone.role","${value}"]]`),
    });
  });
});
