#!/bin/busybox sh
# First program of the test machine: the host's root file system, read-only below and writable in memory above, becomes its
# own; then the guest's loop is started (vm_guest.py). Cgroups are as systemd leaves them: v2 only, this shell in init.scope.
set -e
export PATH=/bin
trap 'echo "vm: the guest failed"; sleep 1; poweroff -f' EXIT
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
read -r modules < /modules && modprobe -a $modules
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,access=any,ro,cache=loose host /parts/host
mount -t tmpfs -o size=75%,mode=755 memory /parts/memory
mkdir /parts/memory/upper /parts/memory/work
mount -t overlay -o lowerdir=/parts/host,upperdir=/parts/memory/upper,workdir=/parts/memory/work root /new
mkdir -p /new/proc /new/sys /new/dev /new/tmp /new/run /new/disk
mount -t proc -o nosuid,nodev,noexec proc /new/proc
mount -t sysfs -o nosuid,nodev,noexec sys /new/sys
mount --move /dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /new/dev/pts
mount -t tmpfs -o nosuid,nodev shm /new/dev/shm
mount -t tmpfs -o mode=755 run /new/run
mount -t ext4 -o noatime /new/dev/vda /new/disk
for name in tmp var/tmp; do # on the disk, as Debian has them: an overlay like the root takes no second one above it
  mkdir -p -m 1777 /new/disk/$name /new/$name
  mount --bind /new/disk/$name /new/$name
done
read -r tree < /tree
[ -e "/new$tree" ] || { mkdir -p "/new$tree" && mount --bind "/parts/host$tree" "/new$tree"; } # a checkout below them
# Its people must reach the checkout, which may lie where only root may look (a clone below /root): opened in memory alone.
above=$tree
while above=${above%/*} && [ -n "$above" ]; do chmod a+x "/new$above"; done
mount -t securityfs -o nosuid,nodev,noexec securityfs /new/sys/kernel/security
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate cgroup2 /new/sys/fs/cgroup
mkdir /new/sys/fs/cgroup/init.scope
echo 1 > /new/sys/fs/cgroup/init.scope/cgroup.procs
echo "+cpu +memory +pids" > /new/sys/fs/cgroup/cgroup.subtree_control
ln -sf /proc/self/fd /new/dev/fd
hostname machine
cp /bin/busybox /guest.py /start /new/run/
# Nothing of this first root may stay mounted: a second, whole /proc would let a covered one be got around.
umount /sys
umount -l /parts/host
umount -l /parts/memory
umount /proc
# The shell stays process 1 and reaps orphans; the guest is its child.
exec switch_root -c /dev/console /new /run/busybox sh /run/start
