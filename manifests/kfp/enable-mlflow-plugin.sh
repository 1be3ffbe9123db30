#!/bin/sh
# Turns on the MLflow plugin of Kubeflow Pipelines' API server (2.17): adds plugin.json under plugins.mlflow of the
# server's own config.json, whatever else that holds, and restarts the server.
#
#   manifests/kfp/enable-mlflow-plugin.sh
#
# KFP_NAMESPACE    where Kubeflow Pipelines runs (kubeflow)
# KFP_CONFIG_JSON  a config.json to start from, where the server's image has no `cat` to read its own with:
#                  backend/src/apiserver/config/config.json of the installed release
#
# The fields are those of MLflowPluginConfig and MLflowPluginSettings in Kubeflow Pipelines'
# backend/src/common/plugins/mlflow; that the file lies at /config/config.json and may be replaced by a mounted
# config map is how its own end-to-end tests do it (configure-mlflow.sh).
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
namespace=${KFP_NAMESPACE:-kubeflow}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

if [ -n "${KFP_CONFIG_JSON:-}" ]; then
    cp "$KFP_CONFIG_JSON" "$work/current.json"
else
    kubectl -n "$namespace" exec deployment/ml-pipeline -c ml-pipeline-api-server -- \
        cat /config/config.json > "$work/current.json"
fi
python3 - "$work/current.json" "$here/plugin.json" > "$work/config.json" <<'PYTHON'
import json, sys
config, plugin = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
config.setdefault("plugins", {})["mlflow"] = plugin
json.dump(config, sys.stdout, indent=2)
PYTHON
kubectl -n "$namespace" create configmap kfp-methods-api-server-config \
    --from-file=config.json="$work/config.json" --dry-run=client --output=yaml > "$work/configmap.yaml"
kubectl -n "$namespace" apply -f "$work/configmap.yaml"
kubectl -n "$namespace" patch deployment ml-pipeline --patch-file "$here/api-server-patch.yaml"
# A file mounted by subPath does not follow its config map.
kubectl -n "$namespace" rollout restart deployment/ml-pipeline
kubectl -n "$namespace" rollout status deployment/ml-pipeline --timeout=5m
