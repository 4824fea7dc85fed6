# One image for every role: `docker run … steadfast serve`, `… job-queue-api`, `… job-queue-worker`, `… job-queue-migrate`.
# packaging/check builds and runs the second stage without a daemon; the first one is replaced there by its name.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --bins --features kinds-s3,kinds-webp \
    && mkdir /out \
    && cp target/release/steadfast target/release/job-queue-api target/release/job-queue-worker \
       target/release/job-queue-migrate /out/

FROM debian:bookworm-slim
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Steadfast" \
      org.opencontainers.image.description="A durable background-job queue that never loses a job it accepted" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
# Not pinned to a version: Debian removes old ones from its mirrors, and CA roots should be the newest there are.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 steadfast \
    && useradd --no-log-init --no-create-home --uid 10001 --gid 10001 --home-dir /data --shell /usr/sbin/nologin steadfast \
    && install -d -m 0700 -o steadfast -g steadfast /data
COPY --from=build /out/ /usr/local/bin/
USER 10001:10001
# steadfast.db is made here, unless DATABASE_URL says otherwise: keep it on a volume. Nothing else is ever written, so the
# rest may be read-only (docker run --read-only).
WORKDIR /data
VOLUME /data
EXPOSE 8080 9091
STOPSIGNAL SIGTERM
# Of serve and api; a worker is asked with `steadfast health --worker`, and migrate not at all.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["steadfast", "health"]
# Without a token it listens only inside the container; with API_BIND_ADDR=0.0.0.0:8080 it asks for STEADFAST_ADMIN_TOKEN_FILE.
CMD ["steadfast", "serve"]
