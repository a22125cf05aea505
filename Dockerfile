# Builds in one stage, runs in a slim one without compiler, tests or root.
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
RUN npm run build && npm prune --omit=dev --omit=optional

FROM node:24-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY LICENSE ./
COPY migrations ./migrations
USER node
EXPOSE 8080
# The first start waits for migrations.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT}/readiness`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# The embedded server is not in the image: DATABASE_URL names the database.
CMD ["node", "dist/main.js"]
