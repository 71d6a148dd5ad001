# Install, use, remove and purge a Debian package, on a copy-on-write view of this machine.
#
#     bash deb_box.sh PACKAGE OUT FOLDER…
#
# PACKAGE: the .deb. OUT: a folder for what each step printed. FOLDERs: what the program
# refers to instead of fetching it, which every user in the view has to be able to enter.
set -eu
[ "${1-}" != --inside ] && exec unshare --mount --pid --net --ipc --fork --kill-child \
    --propagation private bash "$0" --inside "$@"
package=$2 out=$3
shift 3
root=$out/root
mkdir "$root" "$out/over"
mount -t tmpfs tmpfs "$out/over"
mkdir "$out/over/upper" "$out/over/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$out/over/upper,workdir=$out/over/work" "$root"
for folder in "$@"; do
    # one on a file system of its own is not in the view of /
    [ -e "$root$folder" ] || { mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder"; }
    # also those that lie in a closed home directory
    while [ "$folder" != / ]; do
        chmod o+rx "$root$folder"
        folder=$(dirname "$folder")
    done
done
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run" -o mode=755
mount -t tmpfs tmpfs "$root/dev" -o mode=755
for name in null zero random urandom; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir -m 1777 "$root/dev/shm"
cp "$package" "$root/hetd.deb"
echo ready >"$out/ready"

in_root() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C chroot "$root" "$@"; }
# as a step of its own: what it prints, and how it ended
step() {
    name=$1
    shift
    "$@" >"$out/$name" 2>&1 && status=0 || status=$?
    echo "$name $status" >>"$out/statuses"
}
as_ann() {
    in_root setpriv --reuid 4001 --regid 4001 --groups "$(group hetd)" --no-new-privs \
        env HOME=/home/ann sh -c "cd; $*"
}
group() { sed -n "s/^$1:[^:]*:\([0-9]*\):.*/\1/p" "$root/etc/group"; }

step install in_root dpkg --no-triggers -i /hetd.deb
step listed in_root dpkg -L hetd
step user in_root id hetd
printf '[[resource]]\nname = "cpu"\nkind = "cpu"\ndriver = "null"\n' >>"$root/etc/hetd/hetd.toml"
echo 'ann:x:4001:4001::/home/ann:/bin/sh' >>"$root/etc/passwd"
mkdir "$root/home/ann"
chown 4001:4001 "$root/home/ann"

# what the units do, without systemd: the socket's folder, its user, its state
mkdir -p "$root/run/hetd" "$root/var/lib/hetd"
in_root chown hetd:hetd /run/hetd /var/lib/hetd
in_root setpriv --reuid hetd --regid hetd --init-groups --no-new-privs /usr/bin/hetd \
    --config /etc/hetd/hetd.toml --socket /run/hetd/hetd.sock --state /var/lib/hetd \
    >"$out/hetd.log" 2>&1 &
hetd=$!
# the mode that hetd.socket gives
until [ -S "$root/run/hetd/hetd.sock" ] || ! kill -0 $hetd; do sleep 0.05; done
chmod 660 "$root/run/hetd/hetd.sock"
step task as_ann hetctl --socket /run/hetd/hetd.sock submit synthetic \
    --seconds "'{\"cpu\": 0.01}'" --wait
step command as_ann hetctl --socket /run/hetd/hetd.sock run -- id -un
# a user's own environment, with a package that the program's has not
step venv as_ann "python3 -m venv --without-pip own && \
    cd own/lib/python3.*/site-packages && echo 'WORD = \"only ann has this\"' >of_ann.py"
step own as_ann ". own/bin/activate && hetctl --socket /run/hetd/hetd.sock \
    run -- python -c 'import of_ann; print(of_ann.WORD)'"
step lacking as_ann "/usr/lib/hetd/bin/python -c 'import of_ann'"
# and an application of it
site=$(echo "$root"/home/ann/own/lib/python3.*/site-packages)
cat >"$site/app_of_ann.py" <<'END'
import sys
from dataclasses import dataclass
import of_ann
from libtask import Task
@dataclass
class App(Task):
    def save(self, checkpoint):
        return [of_ann.WORD, sys.executable]
@App.on("cpu")
def app(task, device, checkpoint):
    for _ in checkpoint.strips():
        yield
END
mkdir "$site/app_of_ann-1.dist-info"
printf '[libtask.apps]\nof-ann = app_of_ann:App\n' >"$site/app_of_ann-1.dist-info/entry_points.txt"
printf 'Metadata-Version: 2.1\nName: app-of-ann\nVersion: 1\n' >"$site/app_of_ann-1.dist-info/METADATA"
# in place of an installation of the wheel
in_root sh -c 'echo "import site; site.addsitedir(\"$(echo /usr/lib/hetd/lib/python3*/site-packages)\")"' \
    >"$site/hetd.pth"
step unknown as_ann hetctl --socket /run/hetd/hetd.sock submit of-ann
step own_task as_ann hetctl --socket /run/hetd/hetd.sock submit of-ann \
    --python own/bin/python --wait
kill $hetd
wait $hetd || true

step again in_root dpkg --no-triggers --force-confold -i /hetd.deb
step remove in_root dpkg --no-triggers -r hetd
step left sh -c "cd '$root' && find etc/hetd usr/lib/hetd usr/lib/systemd var/lib/hetd \
    usr/bin/hetd usr/bin/hetctl usr/share/man 2>/dev/null | grep hetd"
step purge in_root dpkg --no-triggers -P hetd
step purged sh -c "cd '$root' && find etc/hetd usr/lib/hetd var/lib/hetd var/cache/hetd 2>/dev/null"
