#!/bin/sh
# Try the README on a bare machine: a folder with Debian, python3.11, g++, make and nothing else, entered by chroot.
#
#   sh tools/fresh_machine.sh [--root DIR] [--bind PATH]... [--wheel FILE] [COMMAND]...
#
# Copies the checkout there and runs each COMMAND in it (default: the README's, 'make demo' and 'make test'); then
# installs the wheel into an empty environment, and generates, trains, predicts and reports with it.
# --root DIR: the machine, made by debootstrap unless it exists, and kept; default: a temporary folder.
# --bind PATH: a file or folder of this machine that is at the same place there, read-only (wheels, certificates).
# --wheel FILE: the wheel to install; default: 'make wheel' there.
# Variables of pip, certificates and proxies, and TORCH, are passed on. Needs root, and debootstrap to make a machine.
set -eu
if [ -z "${FRESH_FOLDER:-}" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf --one-file-system "$folder"' EXIT
  trap 'exit 130' INT TERM
  # In namespaces of their own, mounts and processes end with the script.
  FRESH_FOLDER=$folder unshare --mount --pid --fork --kill-child sh "$0" "$@"
  exit
fi

for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z_0-9]*\)=.*/\1/p'); do
  case $name in
    FRESH_FOLDER | PIP_* | SSL_CERT_* | *_proxy | *_PROXY | TORCH) ;;
    *) unset "$name" ;;
  esac
done
export HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin

packages="python3.11 python3.11-venv python3.11-dev g++ make"
checkout=$(pwd)
root=$FRESH_FOLDER
wheel=""
binds=""
while [ $# -gt 0 ]; do
  case $1 in
    --root) root=$2 && shift 2 ;;
    --bind) binds="$binds $2" && shift 2 ;;
    --wheel) wheel=$2 && shift 2 ;;
    --*) echo "fresh_machine: unknown option $1; see the head of $0" >&2 && exit 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- "make demo" "make test"
torch=${TORCH:-$(sed -n 's/^TORCH ?= //p' Makefile)}

mkdir -p "$root"
chmod 755 "$root"
[ -x "$root/bin/sh" ] || debootstrap --variant=minbase bookworm "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
cp /etc/resolv.conf "$root/etc/resolv.conf"
for path in $binds; do
  if [ -d "$path" ]; then mkdir -p "$root$path"; else mkdir -p "$root$(dirname "$path")" && touch "$root$path"; fi
  mount --bind "$path" "$root$path"
  mount -o remount,bind,ro "$root$path"
done
rm -rf "$root/diskhop"
mkdir "$root/diskhop"
# By files, not a pipe, of which only the last command's failure would be noticed.
git -C "$checkout" ls-files -z --cached --others --exclude-standard >"$root/checkout.files"
tar -C "$checkout" --null -T "$root/checkout.files" -cf "$root/checkout.tar"
tar -C "$root/diskhop" -xf "$root/checkout.tar"
rm "$root/checkout.files" "$root/checkout.tar"

# Run a shell line in a folder of the machine, and print how long it took.
run() {
  echo "fresh machine: $2"
  started=$(date +%s)
  chroot "$root" sh -euc "cd $1 && $2"
  echo "fresh machine: $(($(date +%s) - started)) s for: $2"
}

# apt finds what packages depend on; debootstrap's own list of packages would lack what others provide.
run / "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null"
for command in "$@"; do run /diskhop "$command"; done

rm -rf "$root/try" && mkdir -p "$root/try" "$root/diskhop/dist"
if [ -n "$wheel" ]; then cp "$wheel" "$root/diskhop/dist"; else run /diskhop "make wheel"; fi
run /try "python3.11 -m venv venv && venv/bin/pip install --quiet '$torch' && venv/bin/pip install --quiet /diskhop/dist/*.whl"
run /try "venv/bin/diskhop doctor"
run /try "venv/bin/diskhop generate sbm my-graph --nodes 200000 --edges 2000000 --dim 64 --classes 8 --train-fraction 0.1"
run /try "venv/bin/diskhop train my-graph --memory 2GB --epochs 2 --out run"
run /try "venv/bin/diskhop predict run --out predictions && venv/bin/diskhop report run"
echo "fresh machine: everything ran"
