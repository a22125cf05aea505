/** The API's description and the page that shows it, with everything it needs from here: no browser goes elsewhere. */
import swagger, { type StaticDocumentSpec } from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance } from 'fastify';
import { openApiText } from '../contract/openapi.js';

/** Scripts and styles are files of the viewer's; it draws its icons from `data:` URLs. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * `GET /openapi.json`, the text that `fleet-cutover openapi` prints, and `GET /docs`. Anybody may read them: they say what
 * the service can do, and nothing of what is in it.
 */
export function bindDocumentation(app: FastifyInstance): void {
  const text = openApiText();
  app.get('/openapi.json', { config: { caller: 'public' } }, (_request, reply) =>
    reply.type('application/json').send(text),
  );
  void app.register(async (docs) => {
    docs.callerOfScope = 'public';
    docs.addHook('onSend', async (_request, reply) => {
      void reply.headers({ 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' });
    });
    await docs.register(swagger, {
      mode: 'static',
      specification: { document: JSON.parse(text) } as StaticDocumentSpec,
    });
    await docs.register(swaggerUi, {
      routePrefix: '/docs',
      staticCSP: CONTENT_SECURITY_POLICY,
      theme: { title: 'fleet-cutover' },
      uiConfig: {
        // The page tells and sends nothing: a step that has no way back is no button, and no token is typed into a page.
        supportedSubmitMethods: [],
        docExpansion: 'list',
        // Without the bar that loads other descriptions.
        layout: 'BaseLayout',
        deepLinking: true,
        validatorUrl: null,
      },
    });
  });
}
