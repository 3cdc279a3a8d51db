# Shared by the scripts of this folder; sourced, not run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() {
  say "$(basename "$0"): $*"
  exit 1
}

# packages_of SET...: the names that scripts/packages lists for these sets.
packages_of() {
  local sets=" $* " name set
  while read -r name set _; do
    case $name in '' | '#'*) continue ;; esac
    [[ $sets == *" $set "* ]] && printf '%s\n' "$name"
  done <"$root/scripts/packages"
  return 0
}

# missing_packages SET...: those of them that are not installed. No network.
missing_packages() {
  local name
  for name in $(packages_of "$@"); do
    dpkg-query -W -f='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed ||
      printf '%s\n' "$name"
  done
}

# ensure_packages SET...: installs what is missing, as root or through sudo.
ensure_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "Not a Debian system: install yourself what scripts/packages lists; going on."
    return 0
  fi
  local missing
  missing=$(missing_packages "$@" | tr '\n' ' ')
  missing=${missing% }
  [[ -n $missing ]] || return 0

  local as_root=()
  become_root "packages are missing" "apt-get install $missing"
  say "Installing Debian packages: $missing"
  renew_package_lists || say "The package lists could not be renewed; trying with the old ones."
  # shellcheck disable=SC2086
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
    install -y --no-install-recommends $missing </dev/null >&2 ||
    die "installing failed; see above. Wanted: $missing"
}

# renew_package_lists: as root or through sudo.
renew_package_lists() {
  local as_root=()
  become_root "the package lists must be renewed" "apt-get update"
  "${as_root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update </dev/null >&2
}

# become_root WHY COMMAND: sets as_root, or dies with the command to type.
become_root() {
  [[ $(id -u) != 0 ]] || return 0
  command -v sudo >/dev/null || die "$1, and there is no sudo. Run as root: $2"
  as_root=(sudo)
  [[ -t 0 ]] || as_root=(sudo -n)
  "${as_root[@]}" true || die "sudo refused, and $1. Run as root: $2"
}

# sets_of_preset PRESET: the package sets that building it needs.
sets_of_preset() {
  case $1 in
    asan-ubsan) echo build all ;;
    *) echo build ;;
  esac
}

# build_preset PRESET [TARGET...]: configures and builds below build/PRESET; without targets, all.
build_preset() {
  local preset=$1
  shift
  local only=()
  (($# == 0)) || only=(--target "$@")
  (
    cd "$root" || exit 1
    cmake --preset "$preset" >"$(log_file "$preset" configure)" 2>&1 ||
      { cat "$(log_file "$preset" configure)" >&2; exit 1; }
    cmake --build --preset "$preset" --parallel "$(nproc)" "${only[@]}"
  )
}

# log_file PRESET NAME: path of a log below build/PRESET.
log_file() {
  mkdir -p "$root/build/$1/logs"
  printf '%s\n' "$root/build/$1/logs/$2.log"
}
