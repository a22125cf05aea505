import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cutover } from '../support/cutover.js';
import { startService, type TestService } from '../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());
describe('smoke', () => {
  it('goes', async () => {
    const cut = await cutover(service, 'smoke');
    const t = performance.now();
    await cut.bringTo('pallet');
    console.log(performance.now() - t, await cut.explain());
    expect(await cut.phase()).toBe('pallet');
  });
});
