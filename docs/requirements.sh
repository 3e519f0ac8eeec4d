#!/usr/bin/env bash
# Writes requirements.md: which test proves what, from the names of the tests in the sources.
# `requirements.sh --check` fails if the file is not what would be written.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

# PATH<tab>NAME of every function that is named after a requirement
tests() {
  grep -rnoE 'fn [a-z0-9_]+' --include='*.rs' crates xtask | sed -E 's/^([^:]+):[0-9]+:fn (.*)$/\1\t\2/' |
    grep -E $'\t''([a-z_]*_)?(rows_r|tw_|lw_|report_|decision_|port_)[0-9a-z]' | sort -u
}

# the names of the tests of one id, given as a pattern over a name with `_` around it
of() {
  awk -F '\t' -v pattern="$1" -v where="${2:-.}" -v not="${3:-^$}" \
    '("_" $2 "_") ~ pattern && $1 ~ where && $1 !~ not { print "`" $2 "`" }' "$all" | sort -u | paste -sd ' '
}

pattern() {
  local id=$1 number
  number=$(printf '%s' "$id" | tr -dc '0-9' | sed 's/^0*//')
  case $id in
    decision*) echo "_decision_0*${number}_" ;;
    TW*) echo "_tw_0*${number}_" ;;
    LW*) echo "_lw_0*${number}_" ;;
    R*) echo "_r0*${number}_" ;;
    *) echo "_(report|and)_${id}_" ;;
  esac
}

table() {
  cat <<'HEAD'
# Which test proves what

Written by `docs/requirements.sh` from the names of the tests; do not edit. Tests are named after what they prove: `rows_r14_…`
belongs to R14, `tw_03_…` to TW3, `report_038_…` to fault 038, `port_l2_…` to clause L2 of a port. `cargo xtask test NAME`
runs one. Where no test bears an id, the third column says why, in italics.

## Clauses of the ports

Stated in `crates/core/src/port`. The conformance suites run them over every store and every transport.
HEAD
  local file port
  for file in crates/core/src/port/*.rs; do
    grep -qE '^ *//[/!] - [A-Z][0-9] ' "$file" || continue
    port=$(basename "$file" .rs)
    printf '\n### %s\n\n| clause | demands | tests |\n|---|---|---|\n' "$port"
    clauses "$file" | while IFS=$'\t' read -r id text; do
      local clause where=. not='transport'
      clause=$(printf '%s' "$id" | tr '[:upper:]' '[:lower:]')
      [ "$port" = transport ] && where=transport not='^$'
      local found
      found=$(of "_port_([a-z][0-9]_)*${clause}_" "$where" "$not")
      printf '| %s | %s | %s |\n' "$id" "$(first_sentence "$text")" "${found:-*none by that name*}"
    done
  done
  local id text reason
  while IFS='|' read -r id text reason; do
    id=$(trim "$id") text=$(trim "$text") reason=$(trim "$reason")
    case $id in
      '#'*) continue ;;
      '= '*) printf '\n## %s\n\n| id | about | tests |\n|---|---|---|\n' "${id#= }" && continue ;;
    esac
    local found
    found=$(of "$(pattern "$id")")
    [ -n "$found$reason" ] || reason='no test bears this id'
    printf '| %s | %s | %s |\n' "$id" "$text" "${found:-*$reason*}"
  done <docs/requirements.txt
}

trim() { printf '%s' "$1" | sed -E 's/^ +| +$//g'; }

# ID<tab>TEXT of the clauses in a file, their lines joined
clauses() {
  awk '/^ *\/\/[\/!]/ { sub(/^ *\/\/[\/!] ?/, ""); line = $0 } !/./ { line = "" }
    line ~ /^(- )?[A-Z][0-9] / { if (text) print text; text = line; sub(/^- /, "", text); sub(/ /, "\t", text); line = ""; next }
    text && line ~ /^  [^ ]/ { text = text " " substr(line, 3); line = ""; next }
    text { print text; text = "" }
    END { if (text) print text }' "$1"
}

first_sentence() { printf '%s' "$1" | sed -E 's/\. .*$/./; s/\[`([^]]*)`\]/`\1`/g; s/\|/\\|/g'; }

all=$(mktemp)
trap 'rm -f "$all"' EXIT
tests >"$all"
if [ "${1:-}" = --check ]; then
  table | diff -u docs/requirements.md - || { echo "docs/requirements.md: run docs/requirements.sh" >&2; exit 1; }
else
  table >"$all.md" && mv "$all.md" docs/requirements.md
fi
