# A real systemd in private namespaces, on a copy-on-write view of this machine's root.
#
#     bash box.sh CGROUP OUT PYTHON DRIVER
#
# Nothing outside changes but the control group, which the caller made and removes.
# CGROUP: that of this shell. OUT: folder for results. PYTHON: an installation that is
# put where every user can enter. DRIVER: what to run as a unit, in OUT.
set -eu
[ "${1-}" != --inside ] && {
    # Without its own control group systemd would write into the machine's.
    grep -q "^0::/$(basename "$1")\$" /proc/self/cgroup || { echo "not in $1" >&2; exit 3; }
    exec unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child \
        --propagation private bash "$0" --inside "$@"
}
out=$3 python=$4 driver=$5
work=$(mktemp -d) root=$work/root
mkdir "$work/over" "$root"
mount -t tmpfs tmpfs "$work/over"
mkdir "$work/over/upper" "$work/over/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/over/upper,workdir=$work/over/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys" -o ro
mount -t tmpfs tmpfs "$root/run" -o mode=755
mount -t tmpfs tmpfs "$root/tmp" -o mode=1777
mount -t tmpfs tmpfs "$root/dev" -o mode=755
for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
mount -t tmpfs tmpfs "$root/sys/fs/cgroup" 2>/dev/null || true
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mkdir -p "$root/out" "$root/opt/python"
mount --bind "$out" "$root/out"
mount --bind "$python" "$root/opt/python"
bash "$out/furnish.sh" "$root"
rmdir "$root/mnt" 2>/dev/null || true
mkdir -p "$root/mnt"
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin DRIVER="$driver" \
    /lib/systemd/systemd --system --unit=test.target --log-target=console
