/*
 * Operations of the plan that make the view: all through descriptors and the new mount API.
 *
 * Safety of paths. Targets are looked up beneath the new root with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, so that no
 * content of a bound tree, the project's included, can lead a mount or a new file elsewhere. Sources are the host's paths,
 * chosen by the supervisor; a symbolic link as their last component is refused.
 */
#include "init.h"

#include <linux/fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/stat.h>

#define UMOUNT_DETACH 2

/*
 * Where the new root stands until the pivot: a mount must hang somewhere. Every procfs has this empty directory, and no
 * source of a plan lies below it. (Over "/" itself, a ".." in a host path would cross into the new root.)
 */
static const char scaffold[] = "/proc/driver";
static const char outside[] = "/proc/fs"; /* as empty for our purpose: what hangs there is used by descriptor only */

/* --- looking up ----------------------------------------------------------------------------------------------------- */

static long open_how(int at, const char *path, uint64_t flags, uint64_t resolve) {
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
    return sys(__NR_openat2, at, path, &how, sizeof how);
}

#define STRICT (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

long open_inside(struct box *b, const char *path, uint64_t flags, bool follow) {
    if (b->root < 0) {
        return -EBADF; /* an operation on the new view before NewRoot */
    }
    if (follow) {
        return open_how(b->root, path, flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    }
    return open_how(b->root, path[1] == '\0' ? "." : path + 1, flags, STRICT);
}

struct place {
    int parent;       /* the root's or the cache's, not the holder's to close */
    const char *name; /* one component, or "." for the root */
};

/* The directory of the last target: most of a plan's targets lie beside the one before. Its path is in the plan's arena. */
static struct {
    const char *path;
    uint32_t length;
    int fd;
} last = {NULL, 0, -1};

void forget_parent(void) {
    if (last.fd >= 0) {
        sys_close(last.fd);
        last.fd = -1;
    }
}

/* mkdir -p, one component after the other, never through a symbolic link. */
static long make_parents(const struct box *b, char *parent) {
    long at = sys(__NR_fcntl, b->root, F_DUPFD_CLOEXEC, 3);
    char *component = parent;
    while (at >= 0 && component != NULL) {
        char *end = component;
        while (*end != '\0' && *end != '/') {
            end++;
        }
        char *next = *end == '/' ? end + 1 : NULL;
        *end = '\0';
        long made = sys(__NR_mkdirat, at, component, 0755);
        long into = made < 0 && made != -EEXIST ? made : open_how((int)at, component, O_PATH | O_DIRECTORY, STRICT);
        sys_close((int)at);
        at = into;
        component = next;
    }
    return at;
}

/* Open the parent of a new-view path, making it where it is missing. */
static long enter(const struct box *b, const char *path, uint32_t length, struct place *p) {
    if (b->root < 0) {
        return -EBADF;
    }
    p->parent = b->root;
    p->name = length == 1 ? "." : path + 1;
    uint32_t slash = length;
    while (slash > 0 && path[slash] != '/') {
        slash--;
    }
    if (slash == 0) {
        return 0; /* directly beneath the root */
    }
    if (last.fd < 0 || last.length != slash || memcmp(last.path, path, slash) != 0) {
        char parent[PATH_LENGTH_MAX + 1]; /* length was checked against PATH_LENGTH_MAX */
        memcpy(parent, path + 1, slash - 1);
        parent[slash - 1] = '\0';
        long fd = open_how(b->root, parent, O_PATH | O_DIRECTORY, STRICT);
        if (fd == -ENOENT) {
            fd = make_parents(b, parent);
        }
        if (fd < 0) {
            return fd;
        }
        forget_parent();
        last.path = path;
        last.length = slash;
        last.fd = (int)fd;
    }
    p->parent = last.fd;
    p->name = path + slash + 1;
    return 0;
}

static long own(const struct place *p, const struct plan_op *op) {
    if (op->uid == NOTHING && op->gid == NOTHING) {
        return 0;
    }
    return sys(__NR_fchownat, p->parent, p->name, op->uid, op->gid, AT_SYMLINK_NOFOLLOW);
}

/* --- new file systems ------------------------------------------------------------------------------------------------ */

static uint64_t attributes(uint32_t flags) {
    return (flags & FLAG_RO ? MOUNT_ATTR_RDONLY : 0) | (flags & FLAG_NOSUID ? MOUNT_ATTR_NOSUID : 0) |
           (flags & FLAG_NODEV ? MOUNT_ATTR_NODEV : 0) | (flags & FLAG_NOEXEC ? MOUNT_ATTR_NOEXEC : 0);
}

/*
 * Move a detached mount onto a new-view path, making the mount point where it is missing. Takes ``mount`` (which may be an
 * error: it is handed through). A link as the last component is not followed.
 */
long mount_attach(struct box *b, long mount, const char *target, uint32_t length, bool directory) {
    if (mount < 0) {
        return mount;
    }
    struct place p;
    long result = enter(b, target, length, &p);
    if (result == 0) {
        /* mknodat, never open(O_CREAT): no descriptor open for writing may keep the mount from becoming read-only */
        result = directory ? sys(__NR_mkdirat, p.parent, p.name, 0755) : sys(__NR_mknodat, p.parent, p.name, S_IFREG | 0644, 0);
        if (result >= 0 || result == -EEXIST || result == -EROFS) {
            result = sys(__NR_move_mount, mount, "", p.parent, p.name, MOVE_MOUNT_F_EMPTY_PATH);
        }
        if (directory) {
            forget_parent(); /* it may be covered now */
        }
    }
    sys_close((int)mount);
    return result;
}

static struct config config_tmpfs(const struct plan_op *op, uint32_t mode) {
    struct config c = config_open("tmpfs");
    config_text(&c, "source", "tmpfs");
    config_number(&c, "size", op->number[0], 10);
    config_number(&c, "nr_inodes", op->number[1], 10);
    config_number(&c, "mode", mode, 8);
    if (op->uid != NOTHING) {
        config_number(&c, "uid", op->uid, 10);
    }
    if (op->gid != NOTHING) {
        config_number(&c, "gid", op->gid, 10);
    }
    return c;
}

/* Stand in ``mount`` as the root to be. Takes it, an error included. */
static long take_root(struct box *b, long mount) {
    if (mount < 0) {
        return mount;
    }
    /* nothing mounted here reaches the host, nothing mounted there later comes in */
    long result = sys(__NR_mount, 0, "/", 0, MS_REC | MS_PRIVATE, 0);
    if (result >= 0) {
        result = sys(__NR_move_mount, mount, "", AT_FDCWD, scaffold, MOVE_MOUNT_F_EMPTY_PATH);
    }
    if (result >= 0) {
        result = sys(__NR_fchdir, mount); /* pivot_root(".") and umount2 need to stand in it */
    }
    b->root = (int)mount;
    return result;
}

long mount_new_root(struct box *b, const struct plan_op *op) {
    struct config c = config_tmpfs(op, 0755);
    return take_root(b, config_mount(&c, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
}

long mount_adopted_root(struct box *b, const struct plan_op *op) {
    return take_root(b, sys(__NR_fcntl, b->fds[op->fd[0]], F_DUPFD_CLOEXEC, 3)); /* the original is closed with the plan */
}

long mount_tmpfs(struct box *b, const struct plan_op *op) {
    struct config c = config_tmpfs(op, op->mode);
    long mount = config_mount(&c, attributes(op->flags) | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return mount_attach(b, mount, b->arena + op->path, op->path_length, true);
}

long mount_proc(struct box *b, const struct plan_op *op) {
    struct config c = config_open("proc");
    config_text(&c, "source", "proc");
    long mount = config_mount(&c, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (mount >= 0) {
        /* kept for killing trees: masks laid over the mounted one do not reach it */
        long fd = sys(__NR_openat, mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) {
            sys_close((int)mount);
            return fd;
        }
        if (b->proc >= 0) {
            sys_close(b->proc);
        }
        b->proc = (int)fd;
    }
    return mount_attach(b, mount, b->arena + op->path, op->path_length, true);
}

long mount_pts(struct box *b, const struct plan_op *op) {
    struct config c = config_open("devpts");
    config_text(&c, "source", "devpts");
    config_text(&c, "mode", "620");
    config_text(&c, "ptmxmode", "666");
    long mount = config_mount(&c, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    return mount_attach(b, mount, b->arena + op->path, op->path_length, true);
}

long mount_mqueue(struct box *b, const struct plan_op *op) {
    struct config c = config_open("mqueue");
    config_text(&c, "source", "mqueue");
    long mount = config_mount(&c, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return mount_attach(b, mount, b->arena + op->path, op->path_length, true);
}

/* --- existing trees --------------------------------------------------------------------------------------------------- */

static long set_attributes(int mount, uint32_t flags) {
    struct mount_attr attr = {.attr_set = attributes(flags)};
    if (attr.attr_set == 0) {
        return 0;
    }
    return sys(__NR_mount_setattr, mount, "", AT_EMPTY_PATH | (flags & FLAG_RECURSIVE ? AT_RECURSIVE : 0), &attr, sizeof attr);
}

/* Restrict a detached tree while nobody sees it yet, then attach it. Takes ``mount``. */
static long place_tree(struct box *b, int mount, const struct plan_op *op) {
    struct statx st;
    long result = sys(__NR_statx, mount, "", AT_EMPTY_PATH, STATX_TYPE, &st);
    if (result >= 0 && (st.stx_mode & S_IFMT) == S_IFLNK) {
        result = -ELOOP;
    }
    if (result >= 0) {
        result = set_attributes(mount, op->flags);
    }
    if (result < 0) {
        sys_close(mount);
        return result;
    }
    return mount_attach(b, mount, b->arena + op->path, op->path_length, (st.stx_mode & S_IFMT) == S_IFDIR);
}

long mount_bind(struct box *b, const struct plan_op *op) {
    unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | (op->flags & FLAG_RECURSIVE ? AT_RECURSIVE : 0);
    const char *source = b->arena + op->data;
    if (op->flags & FLAG_INSIDE) { /* first found beneath the new root, then taken by its descriptor */
        long found = open_inside(b, source, O_PATH, false);
        if (found < 0) {
            return found;
        }
        long inside = sys(__NR_open_tree, found, "", flags | AT_EMPTY_PATH);
        sys_close((int)found);
        return inside < 0 ? inside : place_tree(b, (int)inside, op);
    }
    long tree = sys(__NR_open_tree, AT_FDCWD, source, flags);
    if (tree < 0) {
        bool absent = tree == -ENOENT || tree == -ENOTDIR;
        return absent && op->flags & FLAG_OPTIONAL ? 0 : tree;
    }
    return place_tree(b, (int)tree, op);
}

/*
 * A mount that only the layers of an overlay need: hung over the old root, and left behind with it at the pivot. Its
 * descriptor then names a mount of this namespace, as overlay wants; and there is no umount of its own to wait for (each is an
 * RCU grace period).
 */
static long hang_outside(int mount, const struct plan_op *op) {
    long result = set_attributes(mount, op->flags);
    if (result >= 0) {
        result = sys(__NR_move_mount, mount, "", AT_FDCWD, outside, MOVE_MOUNT_F_EMPTY_PATH);
    }
    sys_close(mount);
    return result;
}

/* Put the directory of this name below one descriptor in the place of another. */
long open_below(struct box *b, const struct plan_op *op) {
    long fd = open_how(b->fds[op->fd[0]], b->arena + op->path + 1, O_PATH | O_DIRECTORY, STRICT);
    if (fd < 0) {
        return fd;
    }
    long result = sys(__NR_dup3, fd, b->fds[op->fd[1]], O_CLOEXEC);
    sys_close((int)fd);
    return result;
}

long mount_moved(struct box *b, const struct plan_op *op) {
    long copy = sys(__NR_fcntl, b->fds[op->fd[0]], F_DUPFD_CLOEXEC, 3); /* the original is closed with the plan */
    if (copy < 0) {
        return copy;
    }
    return op->flags & FLAG_OUTSIDE ? hang_outside((int)copy, op) : place_tree(b, (int)copy, op);
}

long mount_read_only(struct box *b, const struct plan_op *op) {
    long fd = open_inside(b, b->arena + op->path, O_PATH, false);
    if (fd < 0) {
        return fd;
    }
    long result = set_attributes((int)fd, op->flags | FLAG_RO); /* EINVAL where the path is no mount's root */
    sys_close((int)fd);
    return result;
}

long mount_pivot(struct box *b) {
    if (b->root < 0) {
        return -EBADF;
    }
    /* the old root is stacked onto the new one's ".", and taken off from there: no directory for it is needed */
    long result = sys(__NR_fchdir, b->root);
    if (result >= 0) {
        result = sys(__NR_pivot_root, ".", ".");
    }
    if (result >= 0) {
        result = sys(__NR_umount2, ".", UMOUNT_DETACH);
    }
    return result < 0 ? result : sys(__NR_chdir, "/"); /* cwd on the root, not beneath what was stacked */
}

/* --- content ------------------------------------------------------------------------------------------------------------ */

long mount_dir(struct box *b, const struct plan_op *op) {
    struct place p;
    long result = enter(b, b->arena + op->path, op->path_length, &p);
    if (result < 0) {
        return result;
    }
    result = sys(__NR_mkdirat, p.parent, p.name, op->mode);
    if (result == -EEXIST) {
        struct statx st;
        result = sys(__NR_statx, p.parent, p.name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st);
        if (result >= 0 && (st.stx_mode & S_IFMT) != S_IFDIR) {
            result = -ENOTDIR;
        }
    } else if (result >= 0) {
        result = own(&p, op);
    }
    return result;
}

long mount_file(struct box *b, const struct plan_op *op) {
    struct place p;
    long result = enter(b, b->arena + op->path, op->path_length, &p);
    if (result < 0) {
        return result;
    }
    long fd = sys(__NR_openat, p.parent, p.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, op->mode);
    result = fd < 0 ? fd : 0;
    for (uint32_t done = 0; result >= 0 && done < op->data_length;) {
        result = sys(__NR_write, fd, b->arena + op->data + done, op->data_length - done);
        done += result > 0 ? (uint32_t)result : 0;
    }
    if (fd >= 0) {
        sys_close((int)fd);
    }
    if (result >= 0) {
        result = own(&p, op);
    }
    return result;
}

long mount_symlink(struct box *b, const struct plan_op *op) {
    struct place p;
    long result = enter(b, b->arena + op->path, op->path_length, &p);
    if (result < 0) {
        return result;
    }
    result = sys(__NR_symlinkat, b->arena + op->data, p.parent, p.name);
    return result;
}
