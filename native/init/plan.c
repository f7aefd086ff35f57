/* Carrying out a checked plan: one function a kind that is not a mount, and the list walked in order. */
#include "init.h"

#include <linux/capability.h>
#include <linux/fcntl.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <linux/sockios.h>

struct caps {
    struct __user_cap_header_struct head;
    struct __user_cap_data_struct data[2];
};

static long caps_set(uint64_t permitted) {
    struct caps c = {.head = {_LINUX_CAPABILITY_VERSION_3, 0}};
    c.data[0].permitted = c.data[0].effective = (uint32_t)permitted;
    c.data[1].permitted = c.data[1].effective = (uint32_t)(permitted >> 32);
    return sys(__NR_capset, &c.head, c.data);
}

static long caps_permitted(uint64_t *permitted) {
    struct caps c = {.head = {_LINUX_CAPABILITY_VERSION_3, 0}};
    long result = sys(__NR_capget, &c.head, c.data);
    *permitted = c.data[0].permitted | (uint64_t)c.data[1].permitted << 32;
    return result;
}

static long cgroup_join(const struct box *b, const struct plan_op *op) {
    long wrote = sys(__NR_write, b->fds[op->fd[0]], "0", 1); /* "0": whoever writes; no pid to translate */
    return wrote < 0 ? wrote : 0;
}

/*
 * Ids before mounts: a mount belongs to who made it, and an overlay of a root caller must act as the session's id. The
 * capabilities of the user namespace are kept across the change and raised again: the rest of the plan needs them.
 */
long take_ids(const struct plan_op *op) {
    uint64_t permitted = 0;
    long result = caps_permitted(&permitted);
    if (result >= 0) {
        result = sys(__NR_prctl, PR_SET_KEEPCAPS, 1);
    }
    if (result >= 0 && op->flags & FLAG_CLEAR_GROUPS) {
        result = sys(__NR_setgroups, 0, 0);
    }
    if (result >= 0) {
        result = sys(__NR_setresgid, op->gid, op->gid, op->gid); /* gid first: afterwards the uid might not allow it */
    }
    if (result >= 0) {
        result = sys(__NR_setresuid, op->uid, op->uid, op->uid);
    }
    if (result >= 0) {
        result = caps_set(permitted);
    }
    return result < 0 ? result : sys(__NR_prctl, PR_SET_KEEPCAPS, 0);
}

/* An empty bounding set bounds every later exec. */
static long drop_bounding(struct box *b) {
    for (unsigned cap = 0; cap < 64; cap++) {
        long result = sys(__NR_prctl, PR_CAPBSET_DROP, cap);
        if (result == -EINVAL) {
            break; /* one past the kernel's last */
        }
        if (result < 0) {
            return result;
        }
    }
    b->bounded = true;
    return 0;
}

/*
 * Keep ``keep`` and nothing that could bring more back: the bounding, ambient and inheritable sets are empty, and the locked
 * securebits take the special treatment of uid 0 away for good.
 */
static long drop_caps(struct box *b, const struct plan_op *op) {
    long result = b->bounded ? 0 : drop_bounding(b);
    if (result >= 0) {
        result = sys(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
    }
    if (result >= 0) {
        result = sys(__NR_prctl, PR_SET_SECUREBITS,
                     SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                         SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED);
    }
    return result < 0 ? result : caps_set(op->number[0]);
}

static long non_dumpable(void) {
    long result = sys(__NR_prctl, PR_SET_DUMPABLE, 0);
    /* after the ids, which clear it. The second belt: it fires with the *thread* that cloned us; the first is end of file */
    return result < 0 ? result : sys(__NR_prctl, PR_SET_PDEATHSIG, SYS_SIGKILL);
}

static long loopback_up(struct box *b) {
    long fd = network_enter(b);
    if (fd < 0) {
        return fd;
    }
    fd = sys(__NR_socket, 2 /* AF_INET */, 2 /* SOCK_DGRAM */ | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    struct { /* struct ifreq: <linux/if.h> wants a libc's header */
        char name[16];
        short flags;
        char rest[22];
    } request = {.name = "lo"};
    long result = sys(__NR_ioctl, fd, SIOCGIFFLAGS, &request);
    if (result >= 0) {
        request.flags |= 1 /* IFF_UP */;
        result = sys(__NR_ioctl, fd, SIOCSIFFLAGS, &request);
    }
    sys_close((int)fd);
    return result;
}

static long open_netlink(struct box *b) {
    long fd = network_enter(b);
    if (fd < 0) {
        return fd;
    }
    fd = sys(__NR_socket, 16 /* AF_NETLINK */, 3 /* SOCK_RAW */ | O_CLOEXEC, NETLINK_ROUTE);
    b->netlink = fd < 0 ? -1 : (int)fd;
    return fd;
}

static long keyring(void) {
    long result = sys(__NR_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0);
    return result == -ENOSYS ? 0 : result; /* a kernel without keyrings has none to share */
}

static long landlock_ruleset(struct box *b, const struct plan_op *op) {
    /* own struct: the header of the machine that compiles may be older than the kernel that runs. Zeros at the end are accepted. */
    struct {
        uint64_t handled_fs, handled_net, scoped;
    } attr = {op->number[0], op->number[1], op->number[2]};
    size_t size = attr.scoped != 0 ? 24 : attr.handled_net != 0 ? 16 : 8;
    long fd = sys(__NR_landlock_create_ruleset, &attr, size, 0);
    b->ruleset = fd < 0 ? -1 : (int)fd;
    return fd;
}

static long landlock_rule(struct box *b, const struct plan_op *op) {
    long fd = open_inside(b, b->arena + op->path, O_PATH, true);
    if (fd < 0) {
        return fd == -ENOENT && op->flags & FLAG_OPTIONAL ? 0 : fd;
    }
    struct landlock_path_beneath_attr rule = {.allowed_access = op->number[0], .parent_fd = (int)fd};
    long result = sys(__NR_landlock_add_rule, b->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    sys_close((int)fd);
    return result;
}

static long landlock_enforce(struct box *b) {
    long result = sys(__NR_landlock_restrict_self, b->ruleset, 0);
    sys_close(b->ruleset);
    b->ruleset = -1;
    return result;
}

static long load_filter(const struct box *b, const struct plan_op *op) {
    struct {
        unsigned short length;
        const void *program;
    } filter = {(unsigned short)(op->data_length / 8), b->arena + op->data}; /* <= 4096 instructions: fits */
    return sys(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

static long rlimit(const struct plan_op *op) {
    struct {
        uint64_t soft, hard;
    } limit = {op->number[1], op->number[2]};
    return sys(__NR_prlimit64, 0, op->number[0], &limit, 0);
}

static long open_workdir(struct box *b, const struct plan_op *op) {
    long fd = open_inside(b, b->arena + op->path, O_PATH | O_DIRECTORY, false);
    b->workdir = fd < 0 ? -1 : (int)fd;
    return fd;
}

/* A detached clone of the root with all that is mounted in it: for the root of another sandbox (AdoptRoot). */
static long hand_root(const struct box *b, const struct reply *r) {
    unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE;
    long tree = sys(__NR_open_tree, b->root, "", flags); /* EBADF before there is a root */
    if (tree < 0) {
        return tree;
    }
    reply_fd(r, (int)tree);
    sys_close((int)tree);
    return 0;
}

static long hand_over(struct box *b, const struct plan_op *op) {
    struct reply r = {.kind = REPLY_FD, .code = (uint32_t)op->number[0]};
    if (r.code == REQUEST_HAND_ROOT) {
        return hand_root(b, &r);
    }
    int fd = r.code == REQUEST_HAND_WORKDIR ? b->workdir : r.code == REQUEST_HAND_NETLINK ? b->netlink : -1;
    if (fd < 0) {
        return -EBADF; /* nothing of this kind, or not open yet */
    }
    reply_fd(&r, fd);
    if (fd == b->netlink) { /* whoever asked has it; nothing here needs it */
        sys_close(fd);
        b->netlink = -1;
    }
    return 0;
}

/* One operation. The switch names every kind, so that the compiler reports a forgotten one. */
static long carry_out(struct box *b, const struct plan_op *op) {
    switch ((enum op_kind)op->kind) {
    case OP_CGROUP_JOIN:
        return cgroup_join(b, op);
    case OP_UNSHARE_CGROUP:
        return sys(__NR_unshare, CLONE_NEWCGROUP);
    case OP_TAKE_IDS:
        return take_ids(op);
    case OP_NEW_ROOT:
        return mount_new_root(b, op);
    case OP_ADOPT_ROOT:
        return mount_adopted_root(b, op);
    case OP_DIR:
        return mount_dir(b, op);
    case OP_FILE:
        return mount_file(b, op);
    case OP_SYMLINK:
        return mount_symlink(b, op);
    case OP_BIND:
        return mount_bind(b, op);
    case OP_MOVE_MOUNT:
        return mount_moved(b, op);
    case OP_TMPFS:
        return mount_tmpfs(b, op);
    case OP_PROC:
        return mount_proc(b, op);
    case OP_DEV_PTS:
        return mount_pts(b, op);
    case OP_MQUEUE:
        return mount_mqueue(b, op);
    case OP_OVERLAY:
        return mount_overlay(b, op);
    case OP_READ_ONLY:
        return mount_read_only(b, op);
    case OP_PIVOT:
        return mount_pivot(b);
    case OP_HOSTNAME:
        return sys(__NR_sethostname, b->arena + op->data, op->data_length);
    case OP_LOOPBACK_UP:
        return loopback_up(b);
    case OP_KEYRING:
        return keyring();
    case OP_RLIMIT:
        return rlimit(op);
    case OP_OPEN_NETLINK:
        return open_netlink(b);
    case OP_OPEN_WORKDIR:
        return open_workdir(b, op);
    case OP_COMMAND_IDS:
        b->uid = op->uid;
        b->gid = op->gid;
        return 0;
    case OP_NON_DUMPABLE:
        return non_dumpable();
    case OP_DROP_CAPS:
        return drop_caps(b, op);
    case OP_NO_NEW_PRIVS:
        return sys(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1);
    case OP_LANDLOCK_RULESET:
        return landlock_ruleset(b, op);
    case OP_LANDLOCK_RULE:
        return landlock_rule(b, op);
    case OP_LANDLOCK_ENFORCE:
        return landlock_enforce(b);
    case OP_SECCOMP:
        return load_filter(b, op);
    case OP_OPEN_BELOW:
        return open_below(b, op);
    case OP_DROP_BOUNDING:
        return drop_bounding(b);
    case OP_HAND_OVER:
        return hand_over(b, op);
    case OP_BEGIN_OVERLAYS: /* needs the whole plan: see execute */
    case OP_KINDS:
        break;
    }
    return -EINVAL; /* the check refused it already */
}

long execute(const struct plan *p, struct box *b, uint32_t *step) {
    b->arena = p->arena;
    long result = adopt_layers(p, b, step);
    for (uint32_t i = 0; result >= 0 && i < p->count; i++) {
        *step = i;
        if (p->ops[i].kind == OP_BEGIN_OVERLAYS) {
            overlays_begin(p, b);
        } else {
            result = carry_out(b, &p->ops[i]);
        }
    }
    overlays_end();
    forget_parent();
    b->arena = NULL;
    return result < 0 ? result : 0;
}
