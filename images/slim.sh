#!/bin/sh
# Removes from an environment what no method can use, and writes byte code for the rest: on a read-only root none can
# be written later.
# Usage: slim.sh PREFIX
set -eu
cd "$1"/lib/python3.*/site-packages

for package in matplotlib networkx numpy pandas pyarrow scipy sklearn sympy; do
    if [ -d "$package" ]; then
        find "$package" -type d -name tests -prune -exec rm -rf {} +
    fi
done
# The image has no compiler, so nothing can include these.
rm -rf pyarrow/include pyarrow/src torch/include torch/share/cmake
# Programs that build or test libtorch; torch/bin keeps what torch itself starts (torch_shm_manager).
rm -rf torch/test
rm -f torch/bin/test_* torch/bin/*Test torch/bin/protoc*

# Wheels carry sources for other Python versions too, which fail to compile and are never imported.
/opt/venv/bin/python -m compileall -qq -j 0 --invalidation-mode unchecked-hash -s "$1" -p /opt/venv "$PWD" || true
