#!/bin/sh
# Generates this installation's passwords, once, into files that git ignores.
#
#   manifests/make-secrets.sh           write them; refuses to overwrite what is there
#   manifests/make-secrets.sh --show    print the MLflow administrator's name and password
#
# `kubectl apply -k` on any overlay fails until this has run: nothing here has a default password.
set -eu
umask 077
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mlflow="$here/base/mlflow/secrets"
pipelines="$here/base/pipelines/secrets"

if [ "${1:-}" = --show ]; then
    grep '^MLFLOW_ADMIN_' "$mlflow/mlflow.env"
    exit 0
fi
for file in "$mlflow/postgres.env" "$mlflow/mlflow.env" "$pipelines/kfp-mlflow-credentials.env"; do
    if [ -e "$file" ]; then
        echo "$file exists, and the installed server may use it. See \"Rotate a password\" in" \
             "docs/kubernetes.md; to start over, remove the secrets/ folders and the cluster's volumes." >&2
        exit 1
    fi
done

random() { openssl rand -hex 24; }
database_password=$(random)
pipeline_password=$(random)
mkdir -p "$mlflow" "$pipelines"
printf 'POSTGRES_PASSWORD=%s\n' "$database_password" > "$mlflow/postgres.env"
{
    printf 'DATABASE_PASSWORD=%s\n' "$database_password"
    printf 'MLFLOW_FLASK_SERVER_SECRET_KEY=%s\n' "$(random)"
    printf 'MLFLOW_ADMIN_USERNAME=admin\nMLFLOW_ADMIN_PASSWORD=%s\n' "$(random)"
    printf 'MLFLOW_PIPELINE_USERNAME=pipelines\nMLFLOW_PIPELINE_PASSWORD=%s\n' "$pipeline_password"
} > "$mlflow/mlflow.env"
printf 'MLFLOW_TRACKING_USERNAME=pipelines\nMLFLOW_TRACKING_PASSWORD=%s\n' "$pipeline_password" > "$pipelines/kfp-mlflow-credentials.env"
echo "Wrote $mlflow and $pipelines. Keep a copy in your secret store."
