/*
 * A thread of init while it builds the sandbox: what takes long and waits for nothing is done beside the plan.
 *
 * Two works are long: a network namespace takes the kernel as long as half the mounts of a root together, and an overlay tries
 * its upper directory out, on a disk. On two processors they cost the opening little. The thread shares everything with init,
 * runs only code of init's, and is gone before the last READY: whatever is served meets one thread.
 */
#include "init.h"

#include <linux/fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/sockios.h>

static unsigned char stack[16384] __attribute__((aligned(16)));
static long thread;
static bool alone;             /* no thread could be made: each thing is done in its turn */
static int running;            /* the kernel's word: 0 when the thread is gone */
static int going;              /* posted when it has to begin */
static int networked;          /* posted when ``network`` is known */
static long network = -EBADF;  /* a descriptor of the network namespace, or -errno */

void post(int *word) {
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    (void)sys(__NR_futex, word, FUTEX_WAKE, 1);
}

void await(int *word, int until) {
    for (;;) {
        int now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if (now == until) {
            return;
        }
        (void)sys(__NR_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
    }
}

/* The thread alone moves into a new namespace; a socket of it names the namespace, which no path does as shortly. */
static long make_network(void) {
    long result = sys(__NR_unshare, CLONE_NEWNET);
    if (result < 0) {
        return result;
    }
    long socket = sys(__NR_socket, 1 /* AF_UNIX */, 2 /* SOCK_DGRAM */ | O_CLOEXEC, 0);
    if (socket < 0) {
        return socket;
    }
    result = sys(__NR_ioctl, socket, SIOCGSKNS);
    sys_close((int)socket);
    return result;
}

/*
 * Contract. Runs in a new thread, on init's memory and a stack of its own. It writes to ``network`` and to the overlays that
 * it claims, and posts each; the kernel clears ``running`` and wakes who waits for it when the thread has left the memory.
 */
static void run(void *unused) {
    (void)unused;
    (void)sys(__NR_set_tid_address, &running);
    await(&going, 1);
    network = make_network();
    post(&networked);
    overlays_make();
    for (;;) {
        (void)sys(__NR_exit, 0); /* of this thread; exit_group would take init along */
    }
}

/* Keep the thread from this processor: see beside_go. Advice only: nothing depends on it. */
static void elsewhere(void) {
    uint64_t allowed[16] = {0}; /* 1024 processors; on a machine with more this says EINVAL, and nothing is done */
    unsigned here = 0;
    if (sys(__NR_sched_getaffinity, 0, sizeof allowed, allowed) < 0 || sys(__NR_getcpu, &here, NULL, NULL) < 0 ||
        here / 64 >= sizeof allowed / sizeof *allowed) {
        return;
    }
    allowed[here / 64] &= ~(1ull << here % 64);
    (void)sys(__NR_sched_setaffinity, thread, sizeof allowed, allowed); /* EINVAL where this is the only one */
}

/*
 * Not before there is work for both. A thread that begins while we wait for GO has this processor when GO comes, and where
 * every other is busy the scheduler lets us wait for it, or it for us, as long as neither sleeps.
 */
void beside_go(void) {
    if (going == 0 && !alone) {
        elsewhere();
        post(&going);
    }
}

void beside_begin(void) {
    running = 1; /* until the kernel clears it: not before the thread is gone, however late it starts */
    unsigned long all = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    thread = sys_clone_onto(all, stack + sizeof stack, run, NULL);
    if (thread < 0) { /* a limit on processes: the same without, and slower */
        running = 0;
        alone = true;
    }
}

void beside_end(void) { await(&running, 0); }

long network_enter(struct box *b) {
    if (b->networked) {
        return 0;
    }
    if (alone) {
        long result = sys(__NR_unshare, CLONE_NEWNET);
        b->networked = result >= 0;
        b->unconnected = result < 0;
        return result;
    }
    await(&networked, 1);
    long result = network < 0 ? network : sys(__NR_setns, network, CLONE_NEWNET);
    if (network >= 0) {
        sys_close((int)network);
        network = -EBADF; /* once */
    }
    b->networked = result >= 0;
    b->unconnected = result < 0;
    return result < 0 ? result : 0;
}
