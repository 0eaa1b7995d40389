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
FROM ${BASE_IMAGE}

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
    && python3 -m venv /opt/venv \
    && install --directory --owner=builder --group=builder /workspace /results /opt/context \
    && chown -R builder:builder /opt/venv

# Declared as arguments, these reach RUN only and stay out of the image's environment.
ARG PIP_DEFAULT_TIMEOUT
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_TRUSTED_HOST

USER builder
WORKDIR /opt/context
# The bracket makes the bundle optional: COPY fails on a missing name, not on a pattern.
COPY --chown=builder:builder requirements-cpu.txt site-ca-bundle.pe[m] ./
# pip compiles to bytecode here: without it every import of torch takes 1.5 s longer.
RUN if [ -s site-ca-bundle.pem ]; then \
        export PIP_CERT=/opt/context/site-ca-bundle.pem; \
    fi \
    && export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    && pip install --retries 1 --requirement requirements-cpu.txt \
    && rm -f site-ca-bundle.pem

WORKDIR /workspace
