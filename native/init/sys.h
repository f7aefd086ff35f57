/*
 * System calls without a libc, and the few shapes that the kernel's own headers leave to it.
 *
 * Every call returns the kernel's value: >= 0, or -errno. There is no errno variable and no heap.
 */
#ifndef LEMNI_SYS_H
#define LEMNI_SYS_H

#include <asm/unistd.h>
#include <linux/errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
static inline long sys6(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/*
 * clone with CLONE_VM on a stack of its own: ``enter(argument)`` runs there and must not return. The registers that carry
 * both survive the system call, so the child touches no memory of the parent's frame.
 */
static inline long sys_clone_onto(unsigned long flags, void *stack_top, void (*enter)(void *), void *argument) {
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
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
                     : "a"((long)__NR_clone), "D"(flags), "S"(stack_top), "d"(0L), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
                     : "rcx", "r11", "memory", "cc");
    return result;
}
#elif defined(__aarch64__)
static inline long sys6(long n, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
    return x0;
}

static inline long sys_clone_onto(unsigned long flags, void *stack_top, void (*enter)(void *), void *argument) {
    register long x8 __asm__("x8") = __NR_clone;
    register long x0 __asm__("x0") = (long)flags;
    register void *x1 __asm__("x1") = stack_top;
    register long x2 __asm__("x2") = 0;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
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
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x19), "r"(x20)
                     : "memory", "cc", "x30");
    return x0;
}
#else
#error "lemni-init knows x86_64 and aarch64"
#endif

#define SYS_PICK(n, a, b, c, d, e, f, ...) sys6((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define sys(...) SYS_PICK(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* --- what uapi headers do not define ---------------------------------------------------------------------------- */

#define SEEK_START 0

struct sys_iovec {
    void *base;
    size_t length;
};

struct sys_msghdr {
    void *name;
    int name_length;
    struct sys_iovec *iov;
    size_t iov_length;
    void *control;
    size_t control_length;
    unsigned flags;
};

struct sys_cmsghdr {
    size_t length;
    int level;
    int type;
};

enum { SYS_SOL_SOCKET = 1, SYS_SCM_RIGHTS = 1 };
enum { SYS_MSG_CTRUNC = 0x08, SYS_MSG_TRUNC = 0x20, SYS_MSG_NOSIGNAL = 0x4000, SYS_MSG_CMSG_CLOEXEC = 0x40000000 };
enum { SYS_POLLIN = 1, SYS_POLLERR = 8, SYS_POLLHUP = 16 };

struct sys_pollfd {
    int fd;
    short events;
    short revents;
};

struct sys_timespec {
    int64_t seconds;
    int64_t nanoseconds;
};

struct sys_timeval {
    int64_t seconds;
    int64_t microseconds;
};

struct sys_rusage { /* the part that is read; the kernel's is 144 bytes */
    struct sys_timeval utime;
    struct sys_timeval stime;
    int64_t maxrss; /* KiB */
    int64_t rest[13];
};

enum { SYS_WNOHANG = 1, SYS_WUNTRACED = 2, SYS_WALL = 0x40000000 };
enum { SYS_SIGKILL = 9, SYS_SIGCHLD = 17, SYS_SIGCONT = 18, SYS_SIGSTOP = 19, SYS_SIGXFSZ = 25 };

/* --- small helpers ----------------------------------------------------------------------------------------------- */

static inline void sys_close(int fd) { (void)sys(__NR_close, fd); }

static inline _Noreturn void sys_exit(int status) {
    for (;;) {
        (void)sys(__NR_exit_group, status);
    }
}

/* The signal mask of the calling thread becomes ``mask`` (bit n-1 for signal n). */
static inline void sys_signal_mask(uint64_t mask) {
    (void)sys(__NR_rt_sigprocmask, 2 /* SIG_SETMASK */, &mask, 0, sizeof mask);
}

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *text);

#endif
