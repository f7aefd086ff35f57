/*
 * The privileged side re-checks (the plan comes from our own supervisor, and is checked as if it did not).
 *
 * One row for each kind says which fields it uses; a field that a kind does not use must hold its neutral value, so that a
 * plan of another version, or a mistake in wire.py, is refused before the first operation and not misread in the middle.
 */
#include "check.h"

#define EPROTO_VALUE 71

enum use {
    USES_FD0 = 1,
    USES_LAYERS = 2,       /* three descriptors */
    USES_MODE = 4,
    USES_OWNER = 8,        /* uid, gid: NOTHING keeps */
    USES_IDS = 16,         /* uid, gid: real numbers */
    USES_PATH = 32,        /* absolute, normal form */
    USES_SOURCE = 64,      /* data is an absolute path of the host */
    USES_TEXT = 128,       /* data is text without NUL, not empty */
    USES_BYTES = 256,      /* data is anything */
    USES_NUMBER1 = 512,
    USES_NUMBER2 = 1024,
    USES_NUMBER3 = 2048,
    USES_FILTER = 4096,    /* data is an array of struct sock_filter */
    USES_FD1 = 8192
};

struct rule {
    uint16_t uses;
    uint16_t flags;
};

#define ATTRIBUTES (FLAG_RO | FLAG_NOSUID | FLAG_NODEV | FLAG_NOEXEC)

static const struct rule rules[OP_KINDS] = {
    [OP_CGROUP_JOIN] = {USES_FD0, 0},
    [OP_UNSHARE_CGROUP] = {0, 0},
    [OP_TAKE_IDS] = {USES_IDS, FLAG_CLEAR_GROUPS},
    [OP_NEW_ROOT] = {USES_NUMBER2, 0},
    [OP_DIR] = {USES_PATH | USES_MODE | USES_OWNER, 0},
    [OP_FILE] = {USES_PATH | USES_BYTES | USES_MODE | USES_OWNER, 0},
    [OP_SYMLINK] = {USES_PATH | USES_TEXT, 0},
    [OP_BIND] = {USES_PATH | USES_SOURCE, ATTRIBUTES | FLAG_RECURSIVE | FLAG_OPTIONAL | FLAG_INSIDE},
    [OP_MOVE_MOUNT] = {USES_FD0 | USES_PATH, ATTRIBUTES | FLAG_RECURSIVE | FLAG_OUTSIDE},
    [OP_TMPFS] = {USES_PATH | USES_NUMBER2 | USES_MODE | USES_OWNER, ATTRIBUTES},
    [OP_PROC] = {USES_PATH, 0},
    [OP_DEV_PTS] = {USES_PATH, 0},
    [OP_MQUEUE] = {USES_PATH, 0},
    [OP_OVERLAY] = {USES_PATH | USES_LAYERS, FLAG_USERXATTR | FLAG_VOLATILE},
    [OP_READ_ONLY] = {USES_PATH, FLAG_RECURSIVE},
    [OP_PIVOT] = {0, 0},
    [OP_HOSTNAME] = {USES_TEXT, 0},
    [OP_LOOPBACK_UP] = {0, 0},
    [OP_KEYRING] = {0, 0},
    [OP_RLIMIT] = {USES_NUMBER3, 0},
    [OP_OPEN_NETLINK] = {0, 0},
    [OP_OPEN_WORKDIR] = {USES_PATH, 0},
    [OP_COMMAND_IDS] = {USES_IDS, 0},
    [OP_NON_DUMPABLE] = {0, 0},
    [OP_DROP_CAPS] = {USES_NUMBER1, 0},
    [OP_NO_NEW_PRIVS] = {0, 0},
    [OP_LANDLOCK_RULESET] = {USES_NUMBER3, 0},
    [OP_LANDLOCK_RULE] = {USES_PATH | USES_NUMBER1, FLAG_OPTIONAL},
    [OP_LANDLOCK_ENFORCE] = {0, 0},
    [OP_SECCOMP] = {USES_FILTER, 0},
    [OP_OPEN_BELOW] = {USES_FD0 | USES_FD1 | USES_PATH, 0},
    [OP_BEGIN_OVERLAYS] = {0, 0},
    [OP_ADOPT_ROOT] = {USES_FD0, 0},
    [OP_DROP_BOUNDING] = {0, 0},
    [OP_HAND_OVER] = {USES_NUMBER1, 0},
};

/* ``length`` bytes at ``offset`` lie in the arena and are followed there by a NUL. */
static int placed(const struct plan_header *h, const char *arena, uint32_t offset, uint32_t length) {
    /* in 64 bits: no sum of two u32 wraps */
    return (uint64_t)offset + length < h->arena_size && arena[offset + length] == '\0';
}

static int without_nul(const char *text, uint32_t length) {
    for (uint32_t i = 0; i < length; i++) {
        if (text[i] == '\0') {
            return 0;
        }
    }
    return 1;
}

/* Absolute and in normal form: no empty, "." or ".." component, no slash at the end, "/" itself apart. */
static int normal_path(const char *path, uint32_t length) {
    if (length == 0 || length > PATH_LENGTH_MAX || path[0] != '/' || !without_nul(path, length)) {
        return 0;
    }
    if (length == 1) {
        return 1;
    }
    uint32_t start = 1;
    for (uint32_t i = 1; i <= length; i++) {
        if (i < length && path[i] != '/') {
            continue;
        }
        uint32_t size = i - start;
        if (size == 0 || (size == 1 && path[start] == '.') || (size == 2 && path[start] == '.' && path[start + 1] == '.')) {
            return 0;
        }
        start = i + 1;
    }
    return 1;
}

static int fd_in(const struct plan_header *h, uint32_t fd) { return fd < h->fds; }

static enum plan_fault check_fds(const struct plan_header *h, const struct plan_op *op, uint32_t uses) {
    if (uses & USES_LAYERS) {
        return fd_in(h, op->fd[0]) && fd_in(h, op->fd[1]) && fd_in(h, op->fd[2]) ? FAULT_NONE : FAULT_FD;
    }
    int first = uses & USES_FD0 ? fd_in(h, op->fd[0]) : op->fd[0] == NOTHING;
    int second = uses & USES_FD1 ? fd_in(h, op->fd[1]) : op->fd[1] == NOTHING;
    return first && second && op->fd[2] == NOTHING ? FAULT_NONE : FAULT_FD;
}

static enum plan_fault check_numbers(const struct plan_op *op, uint32_t uses) {
    uint32_t used = uses & USES_NUMBER3 ? 3 : uses & USES_NUMBER2 ? 2 : uses & USES_NUMBER1 ? 1 : 0;
    for (uint32_t i = used; i < 3; i++) {
        if (op->number[i] != 0) {
            return FAULT_NUMBER;
        }
    }
    return FAULT_NONE;
}

static enum plan_fault check_data(const struct plan_header *h, const char *arena, const struct plan_op *op, uint32_t uses) {
    uint32_t any = USES_SOURCE | USES_TEXT | USES_BYTES | USES_FILTER;
    if (!(uses & any)) {
        return op->data_length == 0 ? FAULT_NONE : FAULT_DATA;
    }
    if (!placed(h, arena, op->data, op->data_length)) {
        return FAULT_DATA;
    }
    const char *data = arena + op->data;
    if (uses & USES_SOURCE) {
        return normal_path(data, op->data_length) ? FAULT_NONE : FAULT_DATA;
    }
    if (uses & USES_TEXT) {
        int good = op->data_length > 0 && op->data_length <= PATH_LENGTH_MAX && without_nul(data, op->data_length);
        return good ? FAULT_NONE : FAULT_DATA;
    }
    if (uses & USES_FILTER) {
        int good = op->data_length > 0 && op->data_length <= BPF_LENGTH_MAX && op->data_length % 8 == 0;
        return good ? FAULT_NONE : FAULT_DATA;
    }
    return FAULT_NONE;
}

static enum plan_fault check_op(const struct plan_header *h, const char *arena, const struct plan_op *op) {
    if (op->kind == 0 || op->kind >= OP_KINDS) {
        return FAULT_KIND;
    }
    uint32_t uses = rules[op->kind].uses;
    if (op->flags & ~(uint32_t)rules[op->kind].flags) {
        return FAULT_FLAGS;
    }
    enum plan_fault fault = check_fds(h, op, uses);
    if (fault != FAULT_NONE) {
        return fault;
    }
    if (op->mode & ~(uses & USES_MODE ? 07777u : 0u)) {
        return FAULT_ID;
    }
    if (uses & USES_IDS ? op->uid == NOTHING || op->gid == NOTHING
                        : !(uses & USES_OWNER) && (op->uid != NOTHING || op->gid != NOTHING)) {
        return FAULT_ID;
    }
    if (uses & USES_PATH) {
        if (!placed(h, arena, op->path, op->path_length) || !normal_path(arena + op->path, op->path_length)) {
            return FAULT_PATH;
        }
    } else if (op->path_length != 0) {
        return FAULT_PATH;
    }
    fault = check_data(h, arena, op, uses);
    return fault != FAULT_NONE ? fault : check_numbers(op, uses);
}

enum plan_fault check_plan(const void *bytes, uint32_t size, uint32_t fds, struct plan *plan, uint32_t *step) {
    static const char magic[8] = {'L', 'E', 'M', 'N', 'I', 'P', 'L', 'N'};
    const struct plan_header *h = bytes;
    *step = NOTHING;
    if (size < sizeof *h || size > PAYLOAD_MAX || h->size != size || h->version != PROTOCOL_VERSION) {
        return FAULT_HEADER;
    }
    for (uint32_t i = 0; i < sizeof magic; i++) {
        if (h->magic[i] != magic[i]) {
            return FAULT_HEADER;
        }
    }
    /* ops is bounded first, so the product cannot wrap */
    if (h->ops > PLAN_OPS_MAX || h->fds > PLAN_FDS_MAX || h->fds != fds ||
        h->arena != sizeof *h + h->ops * (uint32_t)sizeof(struct plan_op) || h->arena > size ||
        h->arena_size != size - h->arena) {
        return FAULT_HEADER;
    }
    plan->ops = (const struct plan_op *)((const char *)bytes + sizeof *h);
    plan->arena = (const char *)bytes + h->arena;
    plan->count = h->ops;
    for (uint32_t i = 0; i < h->ops; i++) {
        enum plan_fault fault = check_op(h, plan->arena, &plan->ops[i]);
        if (fault != FAULT_NONE) {
            *step = i;
            return fault;
        }
    }
    return FAULT_NONE;
}

int check_run(const void *bytes, uint32_t size, struct run_strings *run) {
    const struct run *h = bytes;
    if (size < sizeof *h || size > PAYLOAD_MAX || h->argc == 0 || h->argc > ARGC_MAX || h->envc > ARGC_MAX ||
        h->argc + h->envc > ARGC_MAX || h->limits > RLIMITS_MAX || h->zero != 0) {
        return EPROTO_VALUE;
    }
    uint32_t start = (uint32_t)sizeof *h + h->limits * (uint32_t)sizeof(struct run_limit);
    if (start >= size) {
        return EPROTO_VALUE;
    }
    const char *text = (const char *)bytes + start;
    uint32_t length = size - start;
    uint32_t strings = 0;
    for (uint32_t i = 0; i < length; i++) {
        strings += text[i] == '\0';
    }
    /* exactly one NUL a string and the last byte is one: then no string runs beyond the payload */
    if (strings != 1 + h->argc + h->envc || text[length - 1] != '\0') {
        return EPROTO_VALUE;
    }
    run->limits = (const struct run_limit *)((const char *)bytes + sizeof *h);
    run->first = text;
    run->limit_count = h->limits;
    run->argc = h->argc;
    run->envc = h->envc;
    return 0;
}
