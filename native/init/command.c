/*
 * Commands: the slot table, the shim, and the child that becomes the command.
 *
 * init makes the shim, a process of its own on init's memory (a copy would cost as much as the rest of starting a command).
 * The shim becomes a subreaper, starts the child on the same memory (vfork-style), learns there whether execve succeeded,
 * tells the supervisor itself how the child ended, and stays until its last descendant is gone. So "which processes belong to
 * this command" is "what hangs below its shim". What the two run on is mapped for each command, the pad: init takes it away
 * when nothing of the command is left, and not before.
 */
#include "init.h"

#include <linux/capability.h>
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>

struct slot slots[COMMANDS_MAX];
uint32_t slot_top;

struct slot *slot_of_id(uint64_t id) {
    for (uint32_t i = 0; i < slot_top; i++) {
        if (slots[i].state != SLOT_FREE && slots[i].id == id) {
            return &slots[i];
        }
    }
    return NULL;
}

struct slot *slot_of_shim(int pid) {
    for (uint32_t i = 0; i < slot_top; i++) {
        if ((slots[i].state == SLOT_LIVE || slots[i].state == SLOT_DYING) && slots[i].shim == pid) {
            return &slots[i];
        }
    }
    return NULL;
}

static struct slot *slot_take(void) {
    for (uint32_t i = 0; i < slot_top; i++) {
        if (slots[i].state == SLOT_FREE) {
            return &slots[i];
        }
    }
    return slot_top < COMMANDS_MAX ? &slots[slot_top++] : NULL;
}

/*
 * What shim and child need, and where they leave their error. The text of the request (its vectors, then its payload, up to two
 * megabytes) is a mapping of its own, which the shim gives back as soon as the child has executed.
 */
struct pad {
    const struct box *box;
    struct slot *slot;
    int stdio[3];
    bool announce;
    const struct run_limit *limits;
    uint32_t limit_count;
    const char *cwd;
    char **argv, **envp;
    volatile uint32_t stage;
    volatile int32_t error;
    char **text;
    size_t text_size;
    unsigned char shim_stack[16384] __attribute__((aligned(16)));
    unsigned char child_stack[16384] __attribute__((aligned(16)));
};

static void release_text(struct pad *p) {
    char **text = p->text;
    p->text = NULL; /* first: killed in between, we leave a mapping behind, and nobody takes somebody else's away */
    if (text != NULL) {
        (void)sys(__NR_munmap, text, p->text_size);
    }
}

static long capabilities_none(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {0};
    return sys(__NR_capset, &head, none);
}

static long limit(uint32_t resource, uint64_t soft, uint64_t hard) {
    struct {
        uint64_t soft, hard;
    } value = {soft, hard};
    return sys(__NR_prlimit64, 0, resource, &value, 0);
}

static _Noreturn void stillborn(struct pad *b, uint32_t stage, long error) {
    b->stage = stage;
    b->error = (int32_t)-error;
    sys_exit(127);
}

/*
 * Contract. Runs in the new process on init's memory (CLONE_VM|CLONE_VFORK), on a stack of its own, with all signals
 * blocked, while the shim sleeps. It writes to nothing but that stack, b->stage, b->error and its slot's leader; makes raw
 * system calls only; never returns. Order: what needs init's ids before them, what the command's rights must decide (its
 * cwd) after them, the descriptors last, since some are in use until then.
 */
static void child(void *argument) {
    struct pad *b = argument;
    long result = sys(__NR_setsid);
    if (result < 0) {
        stillborn(b, STAGE_SESSION, result);
    }
    b->slot->leader = (int32_t)result; /* setsid returns the new session, our pid: from now on it can be signalled */
    for (int i = 0; i < 3; i++) {
        /* arrived descriptors are above 2 (see CHANNEL): none is overwritten before its turn. dup3 clears close-on-exec */
        result = sys(__NR_dup3, b->stdio[i], i, 0);
        if (result < 0) {
            stillborn(b, STAGE_STDIO, result);
        }
    }
    for (uint32_t i = 0; i < b->limit_count && result >= 0; i++) {
        result = limit(b->limits[i].resource, b->limits[i].soft, b->limits[i].hard);
    }
    if (result >= 0) {
        /* 1, not 0: with 0 the host's piped core handler would still be run, with foreign data */
        result = limit(RLIMIT_CORE, 1, 1);
    }
    if (result < 0) {
        stillborn(b, STAGE_LIMITS, result);
    }
    /* -1 (NOTHING) keeps the id. gid first: afterwards the uid might not allow it. No fix-up of capabilities: securebits */
    result = sys(__NR_setresgid, b->box->gid, b->box->gid, b->box->gid);
    if (result >= 0) {
        result = sys(__NR_setresuid, b->box->uid, b->box->uid, b->box->uid);
    }
    if (result >= 0) {
        /*
         * A change of ids may have made the shared memory dumpable (fs.suid_dumpable): not before execve has left it. While
         * we have capabilities, no other command may look into it either (ptrace(2)); so they go after this.
         */
        result = sys(__NR_prctl, PR_SET_DUMPABLE, 0);
    }
    if (result >= 0) {
        result = capabilities_none();
    }
    if (result < 0) {
        stillborn(b, STAGE_IDS, result);
    }
    /* beneath the working directory, with the command's own rights; no "..", absolute or magic link leads out of it */
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long cwd = b->box->workdir < 0 ? 0 : sys(__NR_openat2, b->box->workdir, b->cwd, &how, sizeof how);
    result = cwd <= 0 ? cwd : sys(__NR_fchdir, cwd);
    if (result < 0) {
        stillborn(b, STAGE_CWD, result);
    }
    /* after this line the process holds its stdio and nothing else, close-on-exec or not */
    (void)sys(__NR_close_range, 3, ~0u, 0);
    sys_signal_mask(0); /* dispositions are default since start.c */
    result = sys(__NR_execve, b->argv[0], b->argv, b->envp);
    stillborn(b, STAGE_EXEC, result);
}

/* Pointers to ``count`` strings that follow ``text`` one another. The NUL of each was checked by check_run. */
static const char *point(char **vector, uint32_t count, const char *text) {
    for (uint32_t i = 0; i < count; i++) {
        vector[i] = (char *)text; /* execve's type wants it writable; nobody writes */
        text += strlen(text) + 1;
    }
    vector[count] = NULL;
    return text;
}

/* Reap until nothing is left below; tell the end of the first child when it comes. */
static _Noreturn void watch(struct slot *s, int leader) {
    for (;;) {
        int status;
        struct sys_rusage usage;
        long pid = sys(__NR_wait4, -1, &status, SYS_WALL, &usage);
        if (pid == -EINTR) {
            continue;
        }
        if (pid < 0) {
            sys_exit(0); /* ECHILD: no child, so no descendant either: orphans would have come to us */
        }
        if (pid == leader) {
            s->leader = 0;
            struct reply r = {
                .kind = REPLY_EXIT,
                .code = (uint32_t)status,
                .id = s->id,
                .number = {(uint64_t)(usage.utime.seconds * 1000000 + usage.utime.microseconds),
                           (uint64_t)(usage.stime.seconds * 1000000 + usage.stime.microseconds), (uint64_t)usage.maxrss * 1024},
            };
            s->told = 1; /* before the sending: killed in between, the supervisor hears at least GONE */
            reply_fd(&r, -1);
        }
    }
}

/*
 * Contract. Runs in a new process on init's memory, on a stack in the pad, with SIGCHLD blocked, and never returns. It writes
 * to the pad and to its slot only. It holds init's ids and, for the time of one clone, init's capabilities.
 */
static void shim(void *argument) {
    struct pad *b = argument;
    struct slot *s = b->slot;
    sys_signal_mask(~0ull); /* a command of the same uid can send us signals: only SIGKILL and SIGSTOP arrive */
    (void)sys(__NR_prctl, PR_SET_NAME, "lemni-shim");
    (void)sys(__NR_prctl, PR_SET_CHILD_SUBREAPER, 1);
    long pid = sys_clone_onto(CLONE_VM | CLONE_VFORK | SYS_SIGCHLD, b->child_stack + sizeof b->child_stack, child, b);
    /* the child has left this memory: from here on the shim needs the channel only, above all no end of the command's pipes */
    (void)sys(__NR_close_range, 1, ~0u, 0);
    release_text(b);
    (void)capabilities_none(); /* fewer is always allowed */
    (void)sys(__NR_prctl, PR_SET_DUMPABLE, 0);
    if (pid < 0 || b->stage != 0) {
        s->leader = 0;
        s->told = 1;
        reply(REPLY_RUN_FAILED, pid < 0 ? STAGE_FORK : b->stage, s->id, pid < 0 ? (int32_t)-pid : b->error);
        if (pid >= 0) {
            (void)sys(__NR_wait4, pid, 0, SYS_WALL, 0);
        }
        sys_exit(0);
    }
    if (b->announce) {
        reply(REPLY_STARTED, (uint32_t)pid, s->id, 0);
    }
    watch(s, (int)pid);
}

static long map(size_t size) {
    return sys(__NR_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Everything of a checked request that shim and child use, in memory that outlives the request. 0, or -errno. */
static long make_pad(const struct box *b, const struct message *m, const struct run_strings *run, struct slot *s) {
    size_t vectors = (run->argc + run->envc + 2) * sizeof(char *);
    long at = map(sizeof(struct pad));
    if (at < 0 && at > -4096) {
        return at;
    }
    struct pad *p = (struct pad *)at;
    s->pad = p;
    p->text_size = vectors + m->head.size;
    at = map(p->text_size);
    if (at < 0 && at > -4096) {
        return at;
    }
    const char *from = m->payload;
    char *copy = (char *)at + vectors;
    memcpy(copy, from, m->head.size);
    p->text = (char **)at;
    p->box = b;
    p->slot = s;
    memcpy(p->stdio, m->fds, sizeof p->stdio);
    p->announce = m->head.flags & ANNOUNCE;
    p->limits = (const struct run_limit *)(copy + ((const char *)run->limits - from));
    p->limit_count = run->limit_count;
    p->cwd = copy + (run->first - from);
    p->argv = p->text;
    p->envp = p->text + run->argc + 1;
    const char *rest = point(p->argv, run->argc, p->cwd + strlen(p->cwd) + 1);
    (void)point(p->envp, run->envc, rest);
    return 0;
}

void slot_release(struct slot *s) {
    if (s->pad != NULL) {
        release_text(s->pad);
        (void)sys(__NR_munmap, s->pad, sizeof *s->pad);
        s->pad = NULL;
    }
    s->state = SLOT_FREE;
}

/* Nothing was started: RUN_FAILED and GONE, so that the supervisor sees the same two words as ever. */
static void refuse(uint64_t id, uint32_t stage, int32_t error) {
    reply(REPLY_RUN_FAILED, stage, id, error);
    reply(REPLY_GONE, 1, id, 0);
}

void run_command(const struct box *b, const struct message *m) {
    struct run_strings run;
    if (slot_of_id(m->head.id) != NULL) {
        reply(REPLY_ERROR, REQUEST_RUN, m->head.id, EEXIST);
        return;
    }
    if (m->fd_count != 3 || check_run(m->payload, m->head.size, &run) != 0) {
        refuse(m->head.id, STAGE_REQUEST, EPROTO);
        return;
    }
    struct slot *s = slot_take();
    if (s == NULL) {
        refuse(m->head.id, STAGE_FORK, EAGAIN);
        return;
    }
    s->id = m->head.id;
    s->leader = 0;
    s->told = 0;
    s->attempts = 0;
    s->shim = 0;
    s->state = SLOT_LIVE;
    long pid = make_pad(b, m, &run, s);
    if (pid >= 0) {
        pid = sys_clone_onto(CLONE_VM | SYS_SIGCHLD, s->pad->shim_stack + sizeof s->pad->shim_stack, shim, s->pad);
    }
    if (pid < 0) {
        slot_release(s);
        refuse(m->head.id, STAGE_FORK, (int32_t)-pid);
        return;
    }
    s->shim = (int32_t)pid;
}
