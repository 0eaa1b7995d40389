# The CPU image: torch, a C++ compiler and the build and test tools.
#
# The orchestrator builds it by itself. By hand:
#
#   docker build --force-rm --file docker/cpu.Dockerfile --tag infini-ci/cpu docker
#
# Without a registry, first make a base: docker/make-base-image BASE, and add
# --build-arg BASE_IMAGE=BASE. A site's proxies and pip settings are build arguments (below);
# its CA bundle is read from site-ca-bundle.pem in the build context, if it is there.

ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE} AS base

# A base imported from an archive has no environment at all, so nothing is inherited here.
ENV LANG=C.UTF-8 \
    PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

RUN if command -v g++ && command -v git && [ -e /etc/ssl/certs/ca-certificates.crt ]; then \
        exit 0; \
    fi \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --no-install-recommends ca-certificates g++ git \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --uid 1000 --create-home --shell /bin/bash builder \
    && install --directory --owner=builder --group=builder \
        /opt/context /opt/venv /results /workspace
USER builder

# A stage of its own: its arguments, among them index addresses with a password in them, are
# not in the history of the image that is made from it. They are in the history of this stage,
# which the orchestrator therefore removes; by hand: docker image prune.
FROM base AS tools
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
WORKDIR /opt/context
# The bracket makes the bundle optional: COPY fails on a missing name, not on a pattern.
COPY --chown=builder:builder requirements-cpu.txt site-ca-bundle.pe[m] ./
# pip compiles to bytecode here: without it every import of torch takes 1.5 s longer.
RUN if [ -s site-ca-bundle.pem ]; then \
        export PIP_CERT=/opt/context/site-ca-bundle.pem; \
    fi \
    && export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    && python3 -m venv /opt/venv \
    && pip install --retries 1 --requirement requirements-cpu.txt

FROM base
COPY --from=tools --chown=builder:builder /opt/venv /opt/venv
WORKDIR /workspace
