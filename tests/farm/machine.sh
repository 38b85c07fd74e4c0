# A copy of this machine's root, or of the one in $below, in the folder $folder. It is gone with the mount namespace.
# Read with `.` by the scripts that try packages in it.
# shellcheck shell=sh

mount -t tmpfs -o size=4g tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
root=$folder/root
mount -t overlay overlay -o "lowerdir=${below:-/},upperdir=$folder/upper,workdir=$folder/work" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"

inside() {
    chroot "$root" "$@"
}

held() {
    echo "held: $1"
}

lost() {
    echo "lost: $1" >&2
    exit 1
}
