/*
 * Killing all that a command started, whatever it did: setsid, double fork, a fork bomb.
 *
 * What belongs to a command is what hangs below its shim, the subreaper, and that is read from /proc. Reading is no
 * snapshot. So the tree is first stopped, pass by pass, until a pass finds nothing that still runs: a stopped process forks
 * no more; then all of it is killed. Where that does not settle (a bomb faster than the passes, or a neighbour of the same
 * uid that sends SIGCONT), kill(-1, SIGSTOP) stops everything in the namespace in one step that no fork slips through (the
 * kernel restarts a fork that meets a signal), the scan is then of a world at rest, and what is not to die goes on. Callers
 * repeat until the shim is gone: the shim's own "no child left" is the only proof.
 */
#include "init.h"

#include <linux/fcntl.h>
#include <linux/mman.h>

struct process {
    int32_t pid;
    int32_t parent;
    char state;
    bool below; /* of the tree that is looked for */
};

struct scan {
    struct process *list;
    size_t count, room;
    bool mapped;
};

#define PASSES 6

static int32_t number_at(const char **text) {
    int32_t value = 0;
    while (**text >= '0' && **text <= '9' && value < 100000000) {
        value = value * 10 + (*(*text)++ - '0');
    }
    return value;
}

/* "PID (name) S PPID ...": the name may hold anything, so the last ")" counts. False: gone meanwhile, or odd. */
static bool read_process(const char *text, long length, struct process *p) {
    long close = length - 1;
    while (close > 0 && text[close] != ')') {
        close--;
    }
    if (close <= 0 || close + 5 > length) {
        return false;
    }
    const char *after = text + close + 2;
    p->pid = number_at(&text);
    p->state = after[0];
    after += 2;
    p->parent = number_at(&after);
    return p->pid > 0;
}

static long grow(struct scan *s) {
    size_t room = s->room * 2;
    long at = sys(__NR_mmap, 0, room * sizeof *s->list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at < 0 && at > -4096) {
        return at;
    }
    memcpy((void *)at, s->list, s->count * sizeof *s->list);
    if (s->mapped) {
        (void)sys(__NR_munmap, s->list, s->room * sizeof *s->list);
    }
    s->list = (struct process *)at;
    s->room = room;
    s->mapped = true;
    return 0;
}

static long scan_one(int proc, const char *name, struct scan *s) {
    char path[32];
    size_t length = strlen(name);
    if (name[0] < '1' || name[0] > '9' || length > 10) {
        return 0; /* not a process */
    }
    memcpy(path, name, length);
    memcpy(path + length, "/stat", 6);
    long fd = sys(__NR_openat, proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fd == -ENOENT || fd == -ESRCH ? 0 : fd;
    }
    char text[512];
    long got = sys(__NR_read, fd, text, sizeof text - 1);
    sys_close((int)fd);
    if (got <= 0) {
        return 0;
    }
    text[got] = '\0';
    if (s->count == s->room) {
        long result = grow(s);
        if (result < 0) {
            return result;
        }
    }
    s->list[s->count].below = false;
    s->count += read_process(text, got, &s->list[s->count]);
    return 0;
}

static long scan_all(int proc, struct scan *s) {
    static union {
        uint64_t aligned;
        char bytes[8192];
    } entries;
    s->count = 0;
    if (proc < 0) {
        return -EBADF;
    }
    long result = sys(__NR_lseek, proc, 0, SEEK_START);
    while (result >= 0) {
        long got = sys(__NR_getdents64, proc, entries.bytes, sizeof entries.bytes);
        if (got <= 0) {
            return got;
        }
        /* struct linux_dirent64: u64 ino, s64 off, u16 reclen, u8 type, name */
        for (long at = 0; at < got && result >= 0;) {
            uint16_t step;
            memcpy(&step, entries.bytes + at + 16, sizeof step);
            result = scan_one(proc, entries.bytes + at + 19, s);
            at += step;
        }
    }
    return result;
}

static struct process *find(struct scan *s, int32_t pid) {
    for (size_t low = 0, high = s->count; low < high;) { /* /proc lists by ascending pid */
        size_t middle = (low + high) / 2;
        if (s->list[middle].pid == pid) {
            return &s->list[middle];
        }
        if (s->list[middle].pid < pid) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* Mark what hangs below ``shim``, or (shim 0) below PID 1 beside the live shims. */
static void mark(struct scan *s, int shim) {
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < s->count; i++) {
            struct process *p = &s->list[i];
            if (p->below || p->pid == 1) {
                continue;
            }
            bool root = shim != 0 ? p->parent == shim : p->parent == 1 && slot_of_shim(p->pid) == NULL;
            struct process *parent = root ? NULL : find(s, p->parent);
            if (root || (parent != NULL && parent->below)) {
                p->below = true;
                changed = true;
            }
        }
    }
}

static void signal_marked(const struct scan *s, int number) {
    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].below) {
            /* the pid cannot have become another command's: what is marked is not reaped but by its own tree */
            (void)sys(__NR_kill, s->list[i].pid, number);
        }
    }
}

/*
 * True when every marked process is stopped or dead: then none of them can fork. (But one: a process whose first thread has
 * ended shows as a zombie while others run. It is killed all the same, and what it forked meanwhile is the next pass's.)
 */
static bool at_rest(const struct scan *s) {
    for (size_t i = 0; i < s->count; i++) {
        char state = s->list[i].state;
        if (s->list[i].below && state != 'T' && state != 't' && state != 'Z' && state != 'X') {
            return false;
        }
    }
    return true;
}

static struct process first_room[1024]; /* more are mapped when there are more */

static void scan_end(struct scan *s) {
    if (s->mapped) {
        (void)sys(__NR_munmap, s->list, s->room * sizeof *s->list);
    }
}

static size_t marked(const struct scan *s) {
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) {
        count += s->list[i].below;
    }
    return count;
}

/* The whole namespace stands still while the tree is found; the others go on, but for those that were stopped before. */
static long kill_at_rest(const struct box *b, int shim, struct scan *s) {
    static struct process before_room[1024];
    struct scan before = {before_room, 0, sizeof before_room / sizeof before_room[0], false};
    long result = scan_all(b->proc, &before);
    (void)sys(__NR_kill, -1, SYS_SIGSTOP);
    if (result >= 0) {
        result = scan_all(b->proc, s);
    }
    if (result >= 0) {
        mark(s, shim);
        signal_marked(s, SYS_SIGKILL);
        for (size_t i = 0; i < s->count; i++) {
            struct process *p = &s->list[i];
            struct process *was = find(&before, p->pid);
            if (p->pid != 1 && !p->below && !(was != NULL && was->state == 'T')) {
                (void)sys(__NR_kill, p->pid, SYS_SIGCONT);
            }
        }
    }
    scan_end(&before);
    return result < 0 ? result : (long)marked(s);
}

long kill_tree(const struct box *b, int shim) {
    struct scan s = {first_room, 0, sizeof first_room / sizeof first_room[0], false};
    long result = 0;
    bool settled = false;
    for (int pass = 0; pass < PASSES && !settled && result >= 0; pass++) {
        result = scan_all(b->proc, &s);
        if (result < 0) {
            break;
        }
        mark(&s, shim);
        result = (long)marked(&s);
        settled = at_rest(&s);
        signal_marked(&s, settled ? SYS_SIGKILL : SYS_SIGSTOP);
    }
    if (!settled && result >= 0) {
        result = kill_at_rest(b, shim, &s);
    }
    scan_end(&s);
    return result;
}

long kill_orphans(const struct box *b) {
    struct scan s = {first_room, 0, sizeof first_room / sizeof first_room[0], false};
    long result = kill_at_rest(b, 0, &s);
    scan_end(&s);
    return result;
}
