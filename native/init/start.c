/* Entry of the init: from the kernel's stack to a served sandbox. */
#include "init.h"

#include <linux/elf.h>
#include <linux/fcntl.h>
#include <linux/prctl.h>

/* --- what gcc expects of a freestanding program ------------------------------------------------------------------- */

#ifdef __clang__
#define SELF_CONTAINED /* -fno-builtin is enough */
#else
#define SELF_CONTAINED __attribute__((optimize("no-tree-loop-distribute-patterns"))) /* or memset would call memset */
#endif

SELF_CONTAINED void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    unsigned char *t = to;
    const unsigned char *f = from;
    for (size_t i = 0; i < n; i++) {
        t[i] = f[i];
    }
    return to;
}

SELF_CONTAINED void *memset(void *to, int byte, size_t n) {
    unsigned char *t = to;
    for (size_t i = 0; i < n; i++) {
        t[i] = (unsigned char)byte;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *x = a;
    const unsigned char *y = b;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i] ? -1 : 1;
        }
    }
    return 0;
}

SELF_CONTAINED size_t strlen(const char *text) {
    size_t n = 0;
    while (text[n] != '\0') {
        n++;
    }
    return n;
}

uintptr_t __stack_chk_guard;
_Noreturn void __stack_chk_fail(void);
_Noreturn void __stack_chk_fail(void) { sys_exit(70); } /* a smashed stack: end, and the namespace with it */

_Noreturn void start(const long *stack);

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txorl %ebp, %ebp\n\tmovq %rsp, %rdi\n\tandq $-16, %rsp\n\tcall start\n\thlt\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x29, #0\n\tmov x30, #0\n\tmov x0, sp\n\tbl start\n\tbrk #1\n");
#endif

#if defined(__x86_64__)
#define RELATIVE 8 /* R_X86_64_RELATIVE */
#elif defined(__aarch64__)
#define RELATIVE 1027 /* R_AARCH64_RELATIVE */
#endif

#define HIDDEN __attribute__((visibility("hidden")))
extern const Elf64_Dyn _DYNAMIC[] HIDDEN;
extern const char __ehdr_start[] HIDDEN;

/*
 * The kernel loads us anywhere and there is no loader: what few pointers the compiler stored (none by gcc on x86_64) are
 * corrected here, before the first is used. Any other kind of relocation is a mistake of the build, which a test catches too.
 */
static void relocate(void) {
    uintptr_t base = (uintptr_t)__ehdr_start;
    const Elf64_Rela *table = NULL;
    size_t size = 0;
    for (const Elf64_Dyn *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_RELA) {
            table = (const Elf64_Rela *)(base + d->d_un.d_ptr);
        }
        if (d->d_tag == DT_RELASZ) {
            size = d->d_un.d_val;
        }
    }
    for (size_t i = 0; i < size / sizeof *table; i++) {
        if (ELF64_R_TYPE(table[i].r_info) != RELATIVE) {
            sys_exit(72);
        }
        *(uintptr_t *)(base + table[i].r_offset) = base + (uintptr_t)table[i].r_addend;
    }
}

/* --- the story ----------------------------------------------------------------------------------------------------- */

/*
 * Undo what the launcher's process had set: a program inherits ignored signals and the mask across exec, and Python ignores
 * SIGPIPE. Only SIGCHLD stays blocked, for the signalfd. The others keep their default action, which for a PID 1 means that
 * nobody inside can use them on it. SIGXFSZ is ignored, here and so in every command: beyond its file size a write then
 * fails with EFBIG, as beyond any other bound, and does not kill.
 */
static int take_signals(void) {
    static const uint64_t default_action[4]; /* struct sigaction of the kernel: handler, flags, restorer, mask */
    static const uint64_t ignore[4] = {1};
    for (int number = 1; number <= 64; number++) {
        /* SIGKILL and SIGSTOP refuse, and need nothing */
        (void)sys(__NR_rt_sigaction, number, number == SYS_SIGXFSZ ? ignore : default_action, 0, 8);
    }
    uint64_t child = 1ull << (SYS_SIGCHLD - 1);
    sys_signal_mask(child);
    return (int)sys(__NR_signalfd4, -1, &child, sizeof child, O_CLOEXEC | O_NONBLOCK);
}

static uint32_t part; /* of the plan, that is carried out */

static _Noreturn void fail(uint32_t step, uint32_t kind, int32_t error, enum plan_fault fault) {
    struct reply r = {.kind = REPLY_FAILED, .code = step, .detail = kind, .error = error, .number = {fault, part}};
    reply_fd(&r, -1);
    sys_exit(1);
}

/*
 * Wait for GO, check the plan, carry it out. True when more of the plan is to come: a part is sent as soon as what it needs is
 * there. Does not return when anything fails.
 */
static bool set_up(struct box *b) {
    static struct message go; /* static: the stack need not grow by its descriptors' array */
    int got = receive(&go);
    if (got == 0) {
        sys_exit(0); /* the launcher gave up */
    }
    if (got < 0 || go.head.kind != REQUEST_GO) {
        fail(NOTHING, 0, got < 0 ? -got : EPROTO, FAULT_MESSAGE);
    }
    beside_go();
    struct plan p;
    uint32_t step;
    enum plan_fault fault = check_plan(go.payload, go.head.size, go.fd_count, &p, &step);
    if (fault != FAULT_NONE) {
        fail(NOTHING, step == NOTHING ? 0 : p.ops[step].kind, EPROTO, fault);
    }
    b->fds = go.fds;
    (void)sys(__NR_umask, 0); /* modes of the plan are exact */
    long error = execute(&p, b, &step);
    if (error < 0) {
        fail(step, p.ops[step].kind, (int32_t)-error, b->unconnected ? FAULT_NETWORK : FAULT_NONE);
    }
    (void)sys(__NR_umask, 022);
    bool more = go.head.flags & MORE;
    if (more && !(go.head.flags & QUIET)) {
        reply(REPLY_READY, 0, 0, 0);
    }
    release(&go);
    part++;
    return more;
}

/* Without the protector: the guard changes on the way. */
__attribute__((no_stack_protector)) _Noreturn void start(const long *stack) {
    relocate();
    const long *word = stack + 1 + stack[0] + 1; /* past argc, argv and its NULL */
    while (*word != 0) {
        word++; /* past the environment: it is empty */
    }
    for (word++; word[0] != 0; word += 2) {
        if (word[0] == 25 /* AT_RANDOM */) {
            memcpy(&__stack_chk_guard, (const void *)word[1], sizeof __stack_chk_guard);
        }
    }

    (void)sys(__NR_setsid); /* away from the person's terminal and its process group */
    (void)sys(__NR_prctl, PR_SET_NAME, "lemni-init");
    /* occupy 1 and 2, so that descriptors of commands arrive above them and dup3 onto 0..2 cannot overwrite one */
    if (sys(__NR_dup3, CHANNEL, 1, O_CLOEXEC) < 0 || sys(__NR_dup3, CHANNEL, 2, O_CLOEXEC) < 0) {
        sys_exit(71);
    }
    int signals = take_signals();
    if (signals < 0) {
        sys_exit(71);
    }
    beside_begin();
    static struct box b = {.root = -1, .workdir = -1, .netlink = -1, .proc = -1, .ruleset = -1, .uid = NOTHING, .gid = NOTHING};
    while (set_up(&b)) {
    }
    long error = network_enter(&b); /* whatever the plan said, or forgot to say */
    if (error < 0) {
        fail(NOTHING, 0, (int32_t)-error, FAULT_NETWORK);
    }
    beside_end();
    reply(REPLY_READY, 0, 0, 0);
    serve(&b, signals);
}
