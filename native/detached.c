/*
 * A mount that hangs nowhere: made here, where a supervisor may make it, and moved into a sandbox by its init.
 *
 * Nobody sees a detached mount but who has its descriptor. Making one needs CAP_SYS_ADMIN in the user namespace that owns the
 * caller's mounts.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A detached mount of ``directory`` (a descriptor), its ids mapped by ``userns`` where that is >= 0. Or -errno. */
int lemni_detached_mount(int directory, int userns) {
    long mount = syscall(SYS_open_tree, directory, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (mount < 0 || userns < 0) {
        return mount < 0 ? -errno : (int)mount;
    }
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    if (syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr, sizeof attr) == 0) {
        return (int)mount;
    }
    int error = errno;
    (void)close((int)mount);
    return -error;
}
