/*
 * Overlays: their layers brought into this mount namespace, made beside the plan, attached in their turn.
 *
 * Making one takes longer than any other step: the kernel tries its upper directory out, on a disk. The thread beside does it
 * while the root is built, when it has time (BeginOverlays); otherwise it is done in its turn.
 */
#include "init.h"

#include <linux/fcntl.h>
#include <linux/mount.h>
#include <linux/stat.h>

static const char *fd_path(char text[40], int fd) {
    static const char prefix[] = "/proc/self/fd/";
    char number[24];
    const char *digits = decimal(number, (uint64_t)fd, 10);
    memcpy(text, prefix, sizeof prefix - 1);
    memcpy(text + sizeof prefix - 1, digits, strlen(digits) + 1);
    return text;
}

/* Open the directory behind a descriptor of another mount namespace again, by its path in ours, and make sure it is the same. */
static long adopt_directory(int fd) {
    char path[PATH_LENGTH_MAX + 1];
    char link[40];
    long length = sys(__NR_readlinkat, AT_FDCWD, fd_path(link, fd), path, sizeof path);
    if (length < 0) {
        return length;
    }
    if ((size_t)length >= sizeof path) {
        return -ENAMETOOLONG;
    }
    path[length] = '\0';
    long own_fd = sys(__NR_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own_fd < 0) {
        return own_fd;
    }
    /* the path was only a hint: what counts is that it is the same directory */
    struct statx given;
    struct statx found;
    long result = sys(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_INO, &given);
    if (result >= 0) {
        result = sys(__NR_statx, own_fd, "", AT_EMPTY_PATH, STATX_INO, &found);
    }
    if (result >= 0 && (given.stx_ino != found.stx_ino || given.stx_dev_major != found.stx_dev_major ||
                        given.stx_dev_minor != found.stx_dev_minor)) {
        result = -ESTALE;
    }
    if (result < 0) {
        sys_close((int)own_fd);
        return result;
    }
    return own_fd;
}

/* A layer that is a mount of its own, or lies in one, has no path: it comes into this namespace by its MoveMount. */
static bool moved_outside(const struct plan *p, uint32_t fd) {
    for (uint32_t i = 0; i < p->count; i++) {
        const struct plan_op *op = &p->ops[i];
        if (op->kind == OP_MOVE_MOUNT && op->flags & FLAG_OUTSIDE && op->fd[0] == fd) {
            return true;
        }
        if (op->kind == OP_OPEN_BELOW && op->fd[1] == fd) {
            return true;
        }
    }
    return false;
}

long adopt_layers(const struct plan *p, const struct box *b, uint32_t *step) {
    for (uint32_t i = 0; i < p->count; i++) {
        *step = i;
        for (uint32_t k = 0; p->ops[i].kind == OP_OVERLAY && k < 3; k++) {
            if (moved_outside(p, p->ops[i].fd[k])) {
                continue;
            }
            int given = b->fds[p->ops[i].fd[k]];
            long own = adopt_directory(given);
            if (own >= 0) {
                long moved = sys(__NR_dup3, own, given, O_CLOEXEC); /* in place of the given one */
                sys_close((int)own);
                own = moved;
            }
            if (own < 0) {
                return own;
            }
        }
    }
    return 0;
}

/* A detached overlay as ``op`` wants it: a descriptor, or -errno. Uses nothing of the new view. */
static long make(const struct box *b, const struct plan_op *op) {
    static const char keys[3][9] = {"lowerdir", "upperdir", "workdir"}; /* no pointers: nothing to relocate */
    struct config c = config_open("overlay");
    config_text(&c, "source", "overlay");
    for (int i = 0; i < 3; i++) {
        char text[40];
        /* by descriptor: any byte may stand in a path, and mountinfo shows no name of the host */
        config_text(&c, keys[i], fd_path(text, b->fds[op->fd[i]]));
    }
    if (op->flags & FLAG_USERXATTR) {
        config_flag(&c, "userxattr");
    }
    if (op->flags & FLAG_VOLATILE) {
        config_flag(&c, "volatile");
    }
    return config_mount(&c, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* --- beside ---------------------------------------------------------------------------------------------------------- */

#define BEGUN_MAX 8 /* overlays that may be made beside; a plan with more makes the others in their turn */

/*
 * What is begun belongs to whoever claims it first: the thread, when it has time, or the plan's walk, when it comes to the
 * overlay's turn. A claim is never given back, so that a thread that looks late finds nothing to do.
 */
static struct {
    const struct box *box;
    const struct plan_op *op;
    bool claimed;
    int done;
    long mount; /* a descriptor or -errno, once done */
} begun[BEGUN_MAX];
static uint32_t count;
static int listed; /* posted when ``count`` is final: the thread waits for it */
static struct plan_op ids; /* a copy of the plan's TakeIds: an overlay acts as who made it */

void overlays_make(void) {
    await(&listed, 1);
    bool acting = ids.kind != OP_TAKE_IDS;
    for (uint32_t i = 0; i < count; i++) {
        if (__atomic_exchange_n(&begun[i].claimed, true, __ATOMIC_ACQ_REL)) {
            continue;
        }
        /* Only with a claim in hand, for which the walk waits: at a later time the change of ids would open init's memory. */
        long result = acting ? 0 : take_ids(&ids);
        acting = result >= 0;
        begun[i].mount = result < 0 ? result : make(begun[i].box, begun[i].op);
        post(&begun[i].done);
    }
}

void overlays_begin(const struct plan *p, const struct box *b) {
    for (uint32_t i = 0; i < p->count && count < BEGUN_MAX && listed == 0; i++) {
        if (p->ops[i].kind == OP_OVERLAY) {
            begun[count].box = b;
            begun[count++].op = &p->ops[i];
        }
        ids = p->ops[i].kind == OP_TAKE_IDS ? p->ops[i] : ids;
    }
    overlays_end();
}

void overlays_end(void) { post(&listed); }

/* The overlay of ``op`` where the thread has it in hand: the caller's from now on. False: the caller makes it. */
static bool take(const struct plan_op *op, long *mount) {
    for (uint32_t i = 0; i < count; i++) {
        if (begun[i].op != op) {
            continue;
        }
        bool claimed = __atomic_exchange_n(&begun[i].claimed, true, __ATOMIC_ACQ_REL);
        if (claimed) {
            await(&begun[i].done, 1);
            *mount = begun[i].mount;
        }
        begun[i].op = NULL; /* its plan goes, and the next may lie at the same place */
        return claimed;
    }
    return false;
}

long mount_overlay(struct box *b, const struct plan_op *op) {
    long mount;
    if (!take(op, &mount)) {
        mount = make(b, op);
    }
    return mount_attach(b, mount, b->arena + op->path, op->path_length, true);
}
