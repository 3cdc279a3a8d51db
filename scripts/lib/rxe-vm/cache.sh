# The guests' kernel and first file system, made once; sourced by scripts/rxe-vm, whose names it
# uses (cache, lib, complain). The kernel package is only unpacked, never installed: nothing of this
# machine's boot changes.
# shellcheck shell=bash disable=SC2034,SC2154

# Loaded by the guest's init, one file each, in this order.
modules_base="virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci
  9pnet 9pnet_virtio netfs fscache 9p overlay virtio_console"
modules_nic="failover net_failover virtio_net"
modules_veth="veth"
modules_bridge="llc stp bridge"
# crc32_generic on purpose: crc32_pclmul's instructions are slow when they are emulated.
modules_rdma="configfs udp_tunnel ip6_udp_tunnel ib_core ib_uverbs ib_cm iw_cm rdma_cm rdma_ucm
  ib_umad crc32_generic rdma_rxe"

# prepare_cache: afterwards $cache has vmlinux, initrd.cpio, the kernel's version and its modules.
prepare_cache() {
  [[ $(uname -sm) == "Linux x86_64" ]] ||
    complain 3 "cannot run here: this is $(uname -sm), and the guests are Linux x86_64"
  (ensure_packages guest) ||
    complain 3 "cannot run here: Debian packages are missing, and they could not be installed"
  local tool missing=''
  for tool in qemu-system-x86_64 busybox cpio xz depmod modinfo rdma; do
    command -v "$tool" >/dev/null || missing+=" $tool"
  done
  [[ -z $missing ]] ||
    complain 3 "cannot run here: no$missing; install what scripts/packages lists as 'guest'"
  mkdir -p "$cache"
  [[ -w $cache ]] ||
    complain 3 "cannot write to $cache; set RXE_VM_CACHE to another folder"
  local lock
  exec {lock}>"$cache/lock"
  flock "$lock"
  [[ -e $cache/kernel-ready && -d $cache/unpacked ]] || fetch_kernel
  local recipe
  recipe=$(cat "$lib/cache.sh" "$lib/init" "$cache/version" | sha256sum)
  [[ -e $cache/initrd.cpio && $(cat "$cache/initrd.recipe" 2>/dev/null) == "$recipe" ]] || {
    make_initrd
    printf '%s\n' "$recipe" >"$cache/initrd.recipe"
  }
  exec {lock}>&-
}

# kernel_package: the name of the newest generic kernel's package.
kernel_package() {
  apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }'
}

# download_kernel: the path of the package in $cache.
download_kernel() {
  local package
  package=$(kernel_package)
  [[ -n $package ]] || return 1
  rm -f "$cache"/*.deb
  (cd "$cache" && apt-get -q download "$package" >"$cache/apt.log" 2>&1) || return 1
  printf '%s\n' "$cache"/"$package"_*.deb
}

fetch_kernel() {
  command -v apt-get >/dev/null ||
    complain 3 "cannot run here: no apt-get to fetch the guests' kernel, Debian's linux-image-amd64"
  say "rxe-vm: fetching the guests' kernel (70 MB, once) into $cache"
  local deb
  deb=$(download_kernel) || { (renew_package_lists) && deb=$(download_kernel); } ||
    complain 3 "cannot run here: Debian's package linux-image-amd64 could not be downloaded;\
 a network and 'apt-get update' are needed once ($cache/apt.log)"
  rm -rf "$cache/unpacked"
  mkdir "$cache/unpacked"
  # Modules that no guest can need are half of the package.
  dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$cache/unpacked" --exclude='*/kernel/sound' \
    --exclude='*/drivers/gpu' --exclude='*/drivers/media' --exclude='*/net/wireless' \
    --exclude='*/drivers/net/ethernet' --exclude='*/drivers/scsi' --exclude='./usr/share' ||
    complain 125 "cannot unpack $deb; is the disk full?"
  rm -f "$deb"
  local version
  version=$(basename "$cache"/unpacked/lib/modules/*)
  depmod -b "$cache/unpacked" "$version" || complain 125 "depmod failed for $version"
  # The bare ELF kernel boots through its PVH entry: 8 s less than unpacking itself in emulation.
  local image="$cache/unpacked/boot/vmlinuz-$version" offset
  offset=$(LC_ALL=C grep -abo -m1 -P '\xfd7zXZ\x00' "$image" | head -n 1 | cut -d: -f1)
  tail -c "+$((offset + 1))" "$image" | xz -dc --single-stream >"$cache/vmlinux" 2>/dev/null
  [[ $(head -c 4 "$cache/vmlinux" | tail -c 3) == ELF ]] ||
    complain 125 "cannot take vmlinux out of $image"
  printf '%s\n' "$version" >"$cache/version"
  touch "$cache/kernel-ready"
}

make_initrd() {
  local tree=$cache/initrd.tree version list names name file
  version=$(cat "$cache/version")
  rm -rf "$tree"
  mkdir -p "$tree"/{bin,modules,proc,sys,dev,lower,upper,host}
  cp "$(command -v busybox)" "$tree/bin/busybox"
  cp "$lib/init" "$tree/init"
  chmod 755 "$tree/init" "$tree/bin/busybox"
  for list in base nic veth bridge rdma; do
    names=modules_$list
    for name in ${!names}; do
      file=$(modinfo -b "$cache/unpacked" -k "$version" -n "$name") ||
        complain 125 "kernel $version has no module $name"
      cp "$file" "$tree/modules/"
      printf '/modules/%s\n' "${file##*/}"
    done >"$tree/$list"
  done
  (cd "$tree" && find . | cpio -o -H newc --quiet) >"$cache/initrd.new" ||
    complain 125 "cannot write $cache/initrd.new; is the disk full?"
  mv "$cache/initrd.new" "$cache/initrd.cpio"
  rm -rf "$tree"
}
