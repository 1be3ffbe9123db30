#!/bin/sh
# Installs the Debian packages whose programs the tests call for real, where they are missing: a PostgreSQL server,
# a browser, a Docker engine and what makes its base image.
set -eu

missing=""
need() { # need PACKAGE PATH…: the package, unless one of the paths exists
    package=$1
    shift
    for path in "$@"; do
        [ -e "$path" ] && return
    done
    missing="$missing $package"
}
need postgresql /usr/lib/postgresql/*/bin/postgres
need chromium /usr/bin/chromium
need docker.io /usr/sbin/dockerd /usr/bin/dockerd
need debootstrap /usr/sbin/debootstrap
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "not installed:$missing; the tests that need them are skipped (install them, or run as root on Debian)" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q update >/dev/null
# shellcheck disable=SC2086  # the packages are words
apt-get -q install --yes --no-install-recommends $missing >/dev/null
