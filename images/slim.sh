#!/bin/sh
# Removes from an environment what no method can use: the tests, headers and C++ test programs that some wheels carry.
# Usage: slim.sh SITE_PACKAGES
set -eu
cd "$1"

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
