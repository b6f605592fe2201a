#!/usr/bin/env bash
# Runs a command with DATABASE_URL set to a throw-away PostgreSQL that listens on a UNIX socket only.
set -euo pipefail

bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
data=$(mktemp -d)
as_owner=()
if [ "$(id -u)" -eq 0 ]; then # PostgreSQL refuses to run as root
  chown postgres "$data"
  as_owner=(runuser -u postgres --)
fi
stop() {
  "${as_owner[@]}" "$bin/pg_ctl" -D "$data/db" -m immediate stop >/dev/null 2>&1 || true
  rm -rf "$data"
}
trap stop EXIT

cd "$data"
"${as_owner[@]}" "$bin/initdb" -D "$data/db" -U conch -A trust >/dev/null
chmod 755 "$data"
"${as_owner[@]}" "$bin/pg_ctl" -D "$data/db" -w -l "$data/log" \
  -o "-c listen_addresses='' -k $data -c fsync=off -c max_connections=60" start >/dev/null
cd "$OLDPWD"
"${as_owner[@]}" "$bin/createdb" -h "$data" -U conch conch
DATABASE_URL="postgresql://conch@/conch?host=$data" "$@"
