#!/usr/bin/env bash
# Time and size of the demo's set-up beside the developer's, each in a fresh clone, one after the other.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for level in demo all; do
  git clone -q "$root" "$work/$level"
  begun=$(date +%s.%N)
  (cd "$work/$level" && bash scripts/setup "$level")
  took=$(echo "$(date +%s.%N) - $begun" | bc)
  echo "$level: $took s, $(du -sm "$work/$level/.venv" | cut -f1) MB"
done
