/*
 * From the supervisor's process to a new init, without ever copying the supervisor.
 *
 * The supervisor is a large Python process with threads, secrets and descriptors. Its child shares its memory for the few
 * microseconds until execveat, as after vfork, so nothing is copied and the cost does not grow with it; and after execveat
 * nothing of it is left: another program, no environment, one socket. The launching thread does not sleep meanwhile: it has a
 * control group to make.
 *
 * Every function returns >= 0, or -errno. None touches Python: cffi releases the GIL around each.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init/sys.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

#define CHILD_STACK 16384

/* --- the child ------------------------------------------------------------------------------------------------------- */

struct birth {
    int running; /* the kernel's word: 0 when the child has left this memory, by exec or by its end */
    volatile int error;
    int channel, init_fd;
    unsigned char stack[CHILD_STACK] __attribute__((aligned(16)));
};

/*
 * Keep the capabilities of the new user namespace across exec: the process is not uid 0 there (its maps are not even written),
 * so only ambient ones survive. They are rights over the new namespaces, and none over the host.
 */
static long keep_capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    long result = sys(__NR_capget, &head, data);
    if (result < 0) {
        return result;
    }
    data[0].inheritable = data[0].permitted;
    data[1].inheritable = data[1].permitted;
    result = sys(__NR_capset, &head, data);
    for (unsigned cap = 0; result >= 0 && cap < 64; cap++) {
        if (!(data[cap / 32].permitted >> cap % 32 & 1)) {
            continue; /* also past the kernel's last */
        }
        result = sys(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap);
    }
    return result;
}

/*
 * Contract. Runs in the new process on the supervisor's memory, beside its threads, on a stack of its own that nobody frees
 * before lemni_settle has seen it gone. All signals are blocked, so no handler of Python can run here. Raw system calls only:
 * no libc (its locks, caches and errno belong to the supervisor), no allocation; it writes to its stack and to b->error.
 * Never returns.
 */
static void enter_init(void *argument) {
    struct birth *b = argument;
    long program = b->init_fd;
    long result = keep_capabilities();
    if (result >= 0 && program == 0) {
        result = program = sys(__NR_fcntl, 0, F_DUPFD_CLOEXEC, 3); /* a supervisor without standard input: out of the way */
    }
    if (result >= 0) {
        /* onto 0, and everything else closed by the exec: a descriptor leaked into the supervisor stops here */
        result = b->channel == 0 ? sys(__NR_fcntl, 0, F_SETFD, 0) : sys(__NR_dup3, b->channel, 0, 0);
    }
    if (result >= 0) {
        result = sys(__NR_close_range, 1, ~0u, 4 /* CLOSE_RANGE_CLOEXEC: the program's own descriptor is needed until then */);
    }
    if (result >= 0) {
        static const char *const argv[] = {"lemni-init", NULL};
        static const char *const envp[] = {NULL};
        result = sys(__NR_execveat, program, "", argv, envp, AT_EMPTY_PATH);
    }
    b->error = (int)-result;
    sys_exit(127);
}

#if defined(__x86_64__)
/* clone3 with CLONE_VM: as sys_clone_onto, the stack being in ``args``. */
static inline long sys_clone3_onto(struct clone_args *args, void (*enter)(void *), void *argument) {
    register void (*r12)(void *) __asm__("r12") = enter;
    register void *r13 __asm__("r13") = argument;
    long result;
    __asm__ volatile("syscall\n\t"
                     "testq %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xorl %%ebp, %%ebp\n\t"
                     "movq %%r13, %%rdi\n\t"
                     "callq *%%r12\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "a"((long)__NR_clone3), "D"(args), "S"(sizeof *args), "r"(r12), "r"(r13)
                     : "rcx", "r11", "memory", "cc");
    return result;
}
#else
static inline long sys_clone3_onto(struct clone_args *args, void (*enter)(void *), void *argument) {
    register long x8 __asm__("x8") = __NR_clone3;
    register long x0 __asm__("x0") = (long)args;
    register long x1 __asm__("x1") = sizeof *args;
    register void (*x19)(void *) __asm__("x19") = enter;
    register void *x20 __asm__("x20") = argument;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, #0\n\t"
                     "mov x0, x20\n\t"
                     "blr x19\n\t"
                     "brk #1\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x19), "r"(x20)
                     : "memory", "cc", "x30");
    return x0;
}
#endif

/* --- small helpers ----------------------------------------------------------------------------------------------------- */

static void close_fd(int *fd) {
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

#define SETTLING_NS 100000000 /* how long a new process may be closed to us */

static int64_t nanoseconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/*
 * Open a file of a process that is in the middle of its exec. We go on when the new memory is there, and that
 * memory is as closed as ours (PR_SET_DUMPABLE) until, a moment later, the exec opens it: EACCES until then.
 */
static int open_settling(int directory, const char *name) {
    int fd = openat(directory, name, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 || errno != EACCES) {
        return fd;
    }
    int64_t end = nanoseconds() + SETTLING_NS;
    while (fd < 0 && errno == EACCES && nanoseconds() < end) {
        (void)sched_yield();
        fd = openat(directory, name, O_WRONLY | O_CLOEXEC);
    }
    return fd;
}

static int write_at(int directory, const char *name, const char *text, size_t size) {
    int fd = open_settling(directory, name);
    if (fd < 0) {
        return -errno;
    }
    ssize_t wrote = write(fd, text, size); /* a map must come in one write */
    int error = wrote < 0 ? errno : (size_t)wrote != size ? EIO : 0;
    (void)close(fd);
    return -error;
}

static int open_process(int pid) {
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d", pid); /* our unreaped child: the number cannot have changed hands */
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int write_maps(int pid, const char *uid_map, size_t uid_size, const char *gid_map, size_t gid_size, int deny_setgroups,
                      int *stage) {
    int process = open_process(pid);
    if (process < 0) {
        *stage = LEMNI_STAGE_UID_MAP;
        return process;
    }
    int result = 0;
    if (deny_setgroups) { /* the kernel lets an ordinary user map a gid only after this */
        *stage = LEMNI_STAGE_SETGROUPS;
        result = write_at(process, "setgroups", "deny", 4);
    }
    if (result == 0) {
        *stage = LEMNI_STAGE_UID_MAP;
        result = write_at(process, "uid_map", uid_map, uid_size);
    }
    if (result == 0) {
        *stage = LEMNI_STAGE_GID_MAP;
        result = write_at(process, "gid_map", gid_map, gid_size);
    }
    (void)close(process);
    return result;
}

/* --- launch -------------------------------------------------------------------------------------------------------------- */

/* Clone the init into new namespaces. It begins to run beside us. */
static int clone_init(struct birth *b, int cgroup_fd, int cgroup_namespace, struct lemni_launched *out) {
    /* the network namespace is the init's first work: it takes as long as all of these, and can be made beside the rest */
    uint64_t flags = CLONE_VM | CLONE_CHILD_CLEARTID | CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
                     CLONE_NEWIPC | CLONE_NEWUTS | (cgroup_namespace ? CLONE_NEWCGROUP : 0);
    struct clone_args args = {
        .flags = flags | (cgroup_fd >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)&out->pidfd,
        .child_tid = (uint64_t)(uintptr_t)&b->running,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)b->stack,
        .stack_size = sizeof b->stack,
        .cgroup = cgroup_fd >= 0 ? (uint64_t)cgroup_fd : 0,
    };
    b->running = 1;
    /*
     * All of them, glibc's own two included (which sigprocmask would leave): a handler must not run on shared memory. The
     * handlers themselves go with the exec, so CLONE_CLEAR_SIGHAND has nothing to add; the init resets the mask and what is
     * ignored.
     */
    uint64_t all = ~0ull;
    uint64_t before = 0;
    (void)sys(__NR_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    long pid = sys_clone3_onto(&args, enter_init, b);
    (void)sys(__NR_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof before);
    out->pid = pid < 0 ? -1 : (int)pid;
    return pid < 0 ? (int)pid : 0;
}

/* As a vfork parent does: until the child has left our memory. */
static void await_exec(struct birth *b) {
    while (__atomic_load_n(&b->running, __ATOMIC_ACQUIRE) != 0) {
        (void)sys(__NR_futex, &b->running, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
}

/* End a child that will not be handed out: by pidfd, reaped, so that nothing is left of a failed launch. */
void lemni_abandon(struct lemni_launched *out) {
    if (out->pid > 0) {
        (void)syscall(SYS_pidfd_send_signal, out->pidfd, SIGKILL, NULL, 0);
        while (waitpid(out->pid, NULL, __WALL) < 0 && errno == EINTR) {
        }
        out->pid = -1;
    }
    if (out->birth != NULL) {
        await_exec(out->birth); /* reaped, but the kernel's word may come later than its end */
        free(out->birth);
        out->birth = NULL;
    }
    close_fd(&out->pidfd);
    close_fd(&out->channel);
}

/*
 * Begin to launch an init: it is on its way to its own program when this returns, and the caller may do something else until
 * lemni_settle or lemni_abandon, one of which must follow. On -errno nothing is left behind.
 */
int lemni_begin(int init_fd, int cgroup_fd, int cgroup_namespace, struct lemni_launched *out) {
    memset(out, 0, sizeof *out);
    out->pid = out->pidfd = out->channel = -1;
    out->stage = LEMNI_STAGE_SOCKET;
    struct birth *b = malloc(sizeof *b);
    int pair[2];
    if (b == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        int error = b == NULL ? ENOMEM : errno;
        free(b);
        return -error;
    }
    b->channel = pair[1];
    b->init_fd = init_fd;
    b->error = 0;
    out->channel = pair[0];
    out->stage = LEMNI_STAGE_CLONE;
    int result = clone_init(b, cgroup_fd, cgroup_namespace, out);
    (void)close(pair[1]); /* the child has a table of its own */
    if (result < 0) {
        free(b);
        close_fd(&out->channel);
        return result;
    }
    out->birth = b;
    return 0;
}

/*
 * Wait until the init runs its own program, and write its id maps. The caller then owns the process, the pidfd and the channel
 * (close-on-exec, non-blocking). On -errno nothing is left behind, and ``stage`` says how far it came.
 */
int lemni_settle(const char *uid_map, size_t uid_map_size, const char *gid_map, size_t gid_map_size, int deny_setgroups,
                 struct lemni_launched *out) {
    struct birth *b = out->birth;
    await_exec(b);
    int result = -b->error;
    free(b);
    out->birth = NULL;
    if (result < 0) {
        out->stage = LEMNI_STAGE_EXEC;
    } else {
        result = write_maps(out->pid, uid_map, uid_map_size, gid_map, gid_map_size, deny_setgroups, &out->stage);
    }
    if (result < 0) {
        lemni_abandon(out);
        return result;
    }
    out->stage = LEMNI_STAGE_NONE;
    (void)fcntl(out->channel, F_SETFL, O_RDWR | O_NONBLOCK);
    return 0;
}

/* --- maps of ids ------------------------------------------------------------------------------------------------------- */

struct holder {
    int parent;
};

/*
 * Contract as enter_init's, but the launching thread does not sleep: this process only keeps a user namespace alive until its
 * descriptor is open. It dies by the parent's SIGKILL, or with the parent.
 */
static void hold_namespace(void *argument) {
    struct holder *h = argument;
    int parent = h->parent;
    (void)sys(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL);
    while (sys(__NR_getppid) == parent) { /* the parent died before the line above: end of its own */
        (void)sys(__NR_ppoll, 0, 0, 0, 0, 0);
    }
    sys_exit(0);
}

/* A descriptor of a new user namespace with these maps. For a caller that may write them (root). */
int lemni_user_namespace(const char *uid_map, size_t uid_map_size, const char *gid_map, size_t gid_map_size) {
    unsigned char stack[CHILD_STACK] __attribute__((aligned(16)));
    struct holder h = {.parent = getpid()};
    uint64_t all = ~0ull;
    uint64_t before = 0;
    (void)sys(__NR_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    /* no exit signal: nobody who waits for SIGCHLD hears of it */
    long pid = sys_clone_onto(CLONE_VM | CLONE_NEWUSER, stack + sizeof stack, hold_namespace, &h);
    int result = (int)pid;
    if (pid > 0) {
        int stage;
        result = write_maps((int)pid, uid_map, uid_map_size, gid_map, gid_map_size, 0, &stage);
        if (result == 0) {
            int process = open_process((int)pid);
            result = process < 0 ? process : openat(process, "ns/user", O_RDONLY | O_CLOEXEC);
            if (process >= 0) {
                result = result < 0 ? -errno : result;
                (void)close(process);
            }
        }
        (void)kill((pid_t)pid, SIGKILL);
        /* its stack is ours: do not return before it is gone */
        while (waitpid((pid_t)pid, NULL, __WALL) < 0 && errno == EINTR) {
        }
    }
    (void)sys(__NR_rt_sigprocmask, SIG_SETMASK, &before, 0, sizeof before);
    return result;
}

/* The kernel's Landlock ABI, or -errno where it has none (ENOSYS: not built in; EOPNOTSUPP: switched off at boot). */
int lemni_landlock_abi(void) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
    return abi < 0 ? -errno : (int)abi;
}
