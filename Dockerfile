# One image for every role: `docker run … steadfast serve`, `… job-queue-api`, `… job-queue-worker`, `… job-queue-migrate`.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --bins --features kinds-s3,kinds-webp \
    && mkdir /out \
    && cp target/release/steadfast target/release/job-queue-api target/release/job-queue-worker \
       target/release/job-queue-migrate /out/

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data steadfast \
    && install -d -m 0700 -o steadfast /data
COPY --from=build /out/ /usr/local/bin/
USER 10001
# steadfast.db is made here, unless DATABASE_URL says otherwise: keep it on a volume.
WORKDIR /data
VOLUME /data
EXPOSE 8080 9091
STOPSIGNAL SIGTERM
# Without a token it listens only inside the container; with API_BIND_ADDR=0.0.0.0:8080 it asks for STEADFAST_ADMIN_TOKEN.
CMD ["steadfast", "serve"]
