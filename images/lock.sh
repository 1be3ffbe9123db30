#!/bin/sh
# Pins the requirements of every group's image, for CPU and CUDA and for Python 3.11 and newer.
# Usage: images/lock.sh [CONSTRAINTS [OPTION…]]
#   CONSTRAINTS  versions to stay at, such as the repository's own lock
#   OPTION       for `uv pip compile`, such as --upgrade
# Pins that still hold are kept. The files name versions and no index: where packages come from is the builder's matter.
set -eu
cd "$(dirname "$0")/.."

constraints=${1:-/dev/null}
[ $# -eq 0 ] || shift
lock() {
    uv pip compile --quiet --universal --python-version 3.11 --annotation-style line \
        --custom-compile-command "make lock" --constraint "$constraints" "$@"
}

lock "$@" images/common.in --output-file images/common.txt
# A group's lock covers what all groups share too, at the same versions.
for wanted in images/*/requirements.in; do
    folder=$(dirname "$wanted")
    [ -e "$folder/Dockerfile" ] && continue
    lock "$@" --constraint images/common.txt images/common.in "$wanted" --output-file "$folder/requirements.txt"
done
