/*
 * Mounts that hang nowhere: made here, where a supervisor may make them, and moved into a sandbox by its init.
 *
 * Nobody sees a detached mount but the holder of its descriptor. Every function returns a descriptor or 0, or -errno; none
 * touches Python. They need CAP_SYS_ADMIN in the user namespace that owns the caller's mounts.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MS_PRIVATE
#define MS_PRIVATE (1 << 18)
#endif

static int result_of(long value) { return value < 0 ? -errno : (int)value; }

static int restricted(int mount, unsigned deep, const struct mount_attr *attr) {
    if (syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH | deep, attr, sizeof *attr) == 0) {
        return mount;
    }
    int error = errno;
    (void)close(mount);
    return -error;
}

/* A detached mount of ``directory`` (a descriptor), its ids mapped by ``userns`` where that is >= 0. */
int lemni_detached_mount(int directory, int userns, int recursive) {
    unsigned deep = recursive ? AT_RECURSIVE : 0;
    long mount = syscall(SYS_open_tree, directory, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | deep);
    if (mount < 0 || userns < 0) {
        return result_of(mount);
    }
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    return restricted((int)mount, deep, &attr);
}

/* The same of a path (no link as its last component is followed), restricted, and deaf to later mounts of the host. */
int lemni_detached_tree(const char *source, int recursive, uint64_t attributes) {
    unsigned deep = recursive ? AT_RECURSIVE : 0;
    long mount = syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | deep);
    if (mount < 0) {
        return result_of(mount);
    }
    struct mount_attr attr = {.attr_set = attributes, .propagation = MS_PRIVATE};
    return restricted((int)mount, deep, &attr);
}

/* A detached tmpfs, nosuid and nodev, of this many bytes and inodes. */
int lemni_detached_tmpfs(uint64_t size, uint64_t inodes) {
    char bytes[24];
    char count[24];
    (void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)size);
    (void)snprintf(count, sizeof count, "%llu", (unsigned long long)inodes);
    const char *const options[][2] = {{"source", "tmpfs"}, {"size", bytes}, {"nr_inodes", count}, {"mode", "755"}};
    int fs = result_of(syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC));
    int result = fs;
    for (unsigned i = 0; result >= 0 && i < sizeof options / sizeof *options; i++) {
        result = result_of(syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0));
    }
    if (result >= 0) {
        result = result_of(syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    }
    if (result >= 0) {
        result = result_of(syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    }
    if (fs >= 0) {
        (void)close(fs);
    }
    return result;
}

/* Hang a detached mount onto ``name`` below another one (Linux 6.15; EINVAL before). */
int lemni_attach(int mount, int below, const char *name) {
    return result_of(syscall(SYS_move_mount, mount, "", below, name, MOVE_MOUNT_F_EMPTY_PATH));
}

/* Set attributes on one mount (mount_setattr(2)). */
int lemni_restrict(int mount, uint64_t attributes) {
    struct mount_attr attr = {.attr_set = attributes};
    return result_of(syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr, sizeof attr));
}
