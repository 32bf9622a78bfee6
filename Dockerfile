# syntax=docker/dockerfile:1

# Builds ratchet, and carries it on a Debian without anything else. `make docker` builds this.

# Base images are pinned by digest, so that a build of the same sources gets the same ones; a new version means a new
# digest too, since a digest wins over the tag beside it. The digests are those of the multi-platform indices.
FROM rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
# rust-toolchain.toml asks for rustfmt and clippy too, which are not needed here: the image's own
# toolchain is the same version.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential pkg-config libclang-dev libssl-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The cache mounts keep compiled dependencies from build to build: RocksDB and librdkafka take about a
# quarter of an hour on two cores. They are no part of an image, so the program is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin ratchet \
    && install -D -m 755 target/release/ratchet /out/ratchet \
    && strip --strip-debug /out/ratchet

FROM debian:bookworm-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libssl3 libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/ratchet
COPY --from=build /out/ratchet /usr/local/bin/ratchet

# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/ratchet
VOLUME /var/lib/ratchet
ENV RATCHET_STATE_DIR=/var/lib/ratchet/state

# /livez never depends on Kafka, so a broker that is away does not get ratchet restarted. There is no
# curl here; bash opens the connection. Override it where `http` is another port.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9464 && printf 'GET /livez HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [[ $status == 200 ]]"]

# SIGTERM finishes the transaction and leaves the group, within 25 s.
STOPSIGNAL SIGTERM
ENTRYPOINT ["ratchet"]
CMD ["--help"]
