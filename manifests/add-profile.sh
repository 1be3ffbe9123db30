#!/bin/sh
# Prepares a user's namespace of a multi-user Kubeflow: an overlay of its own, and an MLflow user of its own, so that no
# namespace's runs may change another's.
#
#   manifests/add-profile.sh NAMESPACE           write overlays/NAMESPACE with a generated password, if there is none;
#                                                launcher-patch.yaml in it is for Kubeflow's MLflow plugin
#   manifests/add-profile.sh NAMESPACE --user    the same, then make the MLflow user on the server, or give it the
#                                                overlay's password where it exists
#
# The password goes through the container's standard input: it is in no command line and no log.
set -eu
umask 077
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
namespace=${1:-}
if ! printf '%s' "$namespace" | LC_ALL=C grep -Eqx '[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?'; then
    echo "usage: $0 NAMESPACE [--user]   (lower-case letters, digits and dashes)" >&2
    exit 2
fi
case "$namespace" in
    cpu | gpu | profile) echo "overlays/$namespace is something else: give the namespace of a profile" >&2; exit 2 ;;
    admin | pipelines) echo "$namespace is an MLflow user already: give the namespace of a profile" >&2; exit 2 ;;
esac
overlay="$here/overlays/$namespace"
credentials="$overlay/secrets/kfp-mlflow-credentials.env"
if [ ! -e "$overlay/kustomization.yaml" ]; then
    mkdir -p "$overlay"
    sed "s/team-a/$namespace/" "$here/overlays/profile/kustomization.yaml" > "$overlay/kustomization.yaml"
    cp "$here/overlays/profile/quota.yaml" "$overlay/quota.yaml"
    sed "s/\"defaultExperimentName\": \"[^\"]*\"/\"defaultExperimentName\": \"$namespace\"/" \
        "$here/kfp/launcher-patch.yaml" > "$overlay/launcher-patch.yaml"
fi
if [ ! -e "$credentials" ]; then
    mkdir -p "$overlay/secrets"
    printf 'MLFLOW_TRACKING_USERNAME=%s\nMLFLOW_TRACKING_PASSWORD=%s\n' "$namespace" "$(openssl rand -hex 24)" > "$credentials"
fi
echo "$overlay is ready. Then: kubectl apply -k $overlay"
if [ "${2:-}" = --user ]; then
    kubectl -n mlflow exec -i deployment/mlflow -c mlflow -- python3 -c '
import os, sys
os.environ["MLFLOW_TRACKING_USERNAME"] = os.environ["MLFLOW_ADMIN_USERNAME"]
os.environ["MLFLOW_TRACKING_PASSWORD"] = os.environ["MLFLOW_ADMIN_PASSWORD"]
from mlflow.exceptions import MlflowException
from mlflow.server.auth.client import AuthServiceClient
given = dict(line.split("=", 1) for line in sys.stdin.read().split())
user = given["MLFLOW_TRACKING_USERNAME"], given["MLFLOW_TRACKING_PASSWORD"]
client = AuthServiceClient(os.environ.get("MLFLOW_TRACKING_URI") or "http://localhost:5000")
try:
    client.create_user(*user)
except MlflowException as error:
    if error.error_code != "RESOURCE_ALREADY_EXISTS":
        raise
    client.update_user_password(*user)
print("MLflow knows the user", user[0])
' < "$credentials"
fi
