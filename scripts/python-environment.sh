# Sourced by the ensure-* scripts that install a python3 with packages from PyPI into the user's
# cache. Finds or creates such a python3 and sets the variable `python` to its path. The sourcing
# script sets
#   what      the missing thing, for messages ("PyTorch")
#   variable  the environment variable that names an existing one (MUSTER_TORCH_PYTHON)
#   needs     what such a python3 must contain ("torch, numpy and safetensors")
#   name      its folder in the cache, and its version there
#   packages  pip's requirements
#   size      their installed size ("5 GB, some minutes")
#   gib       optional: required free space
# and defines `serves PYTHON`, which tests whether a python3 has them, and optionally
# `prepare PYTHON`, which runs before pip. With --installed as its argument it installs nothing.

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
declare -F prepare >/dev/null || prepare() { :; }

missing() {
  echo "muster: $what is missing: $1; or set $variable to a python3 with $needs" >&2
  exit 1
}

# Sets the global variable `python`.
ensure_python() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/muster/peers/${name%/*} target=${XDG_CACHE_HOME:-$HOME/.cache}/muster/peers/$name own=${!variable:-}
  if [ -n "$own" ]; then
    [ -x "$own" ] && serves "$own" || {
      echo "muster: $variable is $own, which is no python3 with $needs" >&2
      exit 1
    }
    python=$own
    return
  fi
  python=$target/bin/python
  if [ -x "$python" ] && serves "$python"; then return; fi
  [ "${1:-}" != --installed ] || missing "not installed: scripts/$(basename "$0") installs it ($size)"
  command -v python3 >/dev/null || "$scripts/apt-install" "Python" python3 python3-venv || missing "python3 is not there"
  mkdir -p "$cache"
  if [ -n "${gib:-}" ]; then
    local free=$(($(df --output=avail -k "$cache" | tail -n 1) / 1048576))
    [ "$free" -ge "$gib" ] || missing "$cache has $free GiB free and it takes $gib"
  fi
  rm -rf "$target"
  fresh=$(mktemp -d "$cache/.fresh.XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  echo "muster: installing $what into $target (PyPI's ${packages[0]}, $size) ..." >&2
  # Wheels are unpacked beside the target, because /tmp may be small.
  mkdir "$fresh/tmp"
  python3 -m venv --without-pip "$fresh/venv" || missing "python3 -m venv fails"
  prepare "$fresh/venv/bin/python"
  TMPDIR=$fresh/tmp "$scripts/pip" --python "$fresh/venv/bin/python" install "${packages[@]}" || missing "PyPI's ${packages[*]} could not be installed"
  serves "$fresh/venv/bin/python" || missing "what PyPI gave does not work"
  # Another run may have finished first; its folder is equivalent.
  mv -T "$fresh/venv" "$target" 2>/dev/null || true
  serves "$python" || missing "$target does not start"
}
