#!/bin/sh
# Runs apt-get or pip with the builder's own mirror and certificates, which come as BuildKit secrets and so
# stay out of every layer:
#   ca_bundle    certificates to trust, PEM
#   pip_config   a pip.conf (index-url, find-links, …)
#   apt_sources  a sources.list that replaces the base image's
# Usage: fetch.sh apt PACKAGE…   |   fetch.sh pip ARGUMENT…
set -eu

secrets=/run/secrets
tool=$1
shift

case $tool in
apt)
    options="-o Dpkg::Use-Pty=0 -o Binary::apt::APT::Keep-Downloaded-Packages=true -o APT::Update::Error-Mode=any"
    if [ -s $secrets/ca_bundle ]; then
        options="$options -o Acquire::https::CaInfo=$secrets/ca_bundle"
    fi
    if [ -s $secrets/apt_sources ]; then
        options="$options -o Dir::Etc::SourceList=$secrets/apt_sources -o Dir::Etc::SourceParts=/dev/null"
    fi
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # the options are words
    apt-get $options -q update
    # shellcheck disable=SC2086
    apt-get $options -q install --yes --no-install-recommends "$@"
    rm -rf /var/log/apt /var/log/dpkg.log /var/cache/debconf/*-old /var/lib/dpkg/*-old
    ;;
pip)
    if [ -s $secrets/ca_bundle ]; then
        export PIP_CERT=$secrets/ca_bundle
    fi
    if [ -s $secrets/pip_config ]; then
        export PIP_CONFIG_FILE=$secrets/pip_config
    fi
    exec /opt/build/bin/pip --no-input --disable-pip-version-check "$@"
    ;;
*)
    echo "fetch.sh: unknown tool $tool" >&2
    exit 2
    ;;
esac
