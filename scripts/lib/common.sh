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
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null ||
      die "packages are missing, and there is no sudo. Run as root: apt-get install $missing"
    as_root=(sudo)
    [[ -t 0 ]] || as_root=(sudo -n)
    "${as_root[@]}" true ||
      die "sudo refused, and packages are missing. Run as root: apt-get install $missing"
  fi
  say "Installing Debian packages: $missing"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q)
  apt+=(-o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >&2 || say "The package lists could not be renewed; trying with the old ones."
  # shellcheck disable=SC2086
  "${apt[@]}" install -y --no-install-recommends $missing </dev/null >&2 ||
    die "installing failed; see above. Wanted: $missing"
}

# sets_of_preset PRESET: the package sets that building it needs.
sets_of_preset() {
  case $1 in
    asan-ubsan) echo build all ;;
    *) echo build ;;
  esac
}

# build_preset PRESET: configures and builds below build/PRESET.
build_preset() {
  local preset=$1
  (
    cd "$root" || exit 1
    cmake --preset "$preset" >"$(log_file "$preset" configure)" 2>&1 ||
      { cat "$(log_file "$preset" configure)" >&2; exit 1; }
    cmake --build --preset "$preset" --parallel "$(nproc)"
  )
}

# log_file PRESET NAME: path of a log below build/PRESET.
log_file() {
  mkdir -p "$root/build/$1/logs"
  printf '%s\n' "$root/build/$1/logs/$2.log"
}
