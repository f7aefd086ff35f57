/*
 * Serving: one loop over the channel and the signalfd. It never blocks in a wait, so that end of file on the channel (the
 * supervisor's death included) ends it at once, and with PID 1 every process of the namespace.
 */
#include "init.h"

#include <linux/fcntl.h>

#define MILLISECOND 1000000
#define PAUSE_LEAST (2 * MILLISECOND)
#define PAUSE_MOST (64 * MILLISECOND)
#define PATIENCE 8 /* passes that find an empty tree and a shim that does not end, about 250 ms: somebody keeps it stopped */

static uint32_t pending;  /* commands that are dying or lost: the loop then wakes by itself */

static void gone(struct slot *s) {
    reply(REPLY_GONE, s->told, s->id, 0);
    slot_release(s);
}

/* Where /proc cannot be read, killing one tree is not to be had: then everything dies rather than something survive. */
static long kill_everything(void) {
    (void)sys(__NR_kill, -1, SYS_SIGKILL);
    return 0;
}

/* One more pass over what is to die. Called when something ended, and by the clock. */
static void press_on(const struct box *b) {
    bool orphans = false;
    for (uint32_t i = 0; i < slot_top; i++) {
        struct slot *s = &slots[i];
        if (s->state == SLOT_DYING) {
            long found = kill_tree(b, s->shim);
            if (found < 0) {
                (void)kill_everything();
            }
            s->attempts = found == 0 ? s->attempts + 1 : 0;
            (void)sys(__NR_kill, s->shim, s->attempts < PATIENCE ? SYS_SIGCONT : SYS_SIGKILL);
        }
        orphans = orphans || s->state == SLOT_LOST;
    }
    if (!orphans) {
        return;
    }
    long left = kill_orphans(b);
    if (left < 0) {
        left = kill_everything();
    }
    for (uint32_t i = 0; left == 0 && i < slot_top; i++) {
        if (slots[i].state == SLOT_LOST) {
            pending--;
            gone(&slots[i]);
        }
    }
}

/* The shim ended. Of itself: its command is gone. Killed: what it watched came to us, and is to die. */
static void shim_ended(struct slot *s, bool by_itself) {
    if (by_itself) {
        pending -= s->state == SLOT_DYING;
        gone(s);
        return;
    }
    pending += s->state == SLOT_LIVE;
    s->state = SLOT_LOST;
}

static void reap(const struct box *b) {
    bool lost = false;
    for (;;) {
        int status;
        long pid = sys(__NR_wait4, -1, &status, SYS_WNOHANG | SYS_WUNTRACED | SYS_WALL, 0);
        if (pid <= 0) {
            break;
        }
        struct slot *s = slot_of_shim((int)pid);
        if (s == NULL) {
            continue; /* an orphan of a lost shim: reaped, and that is all it needs */
        }
        if ((status & 0xff) == 0x7f) {
            (void)sys(__NR_kill, pid, SYS_SIGCONT); /* a command of the same uid stopped its shim: go on */
            continue;
        }
        shim_ended(s, status == 0);
        lost = lost || s->state == SLOT_LOST;
    }
    if (lost) {
        press_on(b); /* what it watched runs on without it: at once */
    }
}

static void signal_command(uint64_t id, uint32_t number) {
    struct slot *s = slot_of_id(id);
    int32_t leader = s == NULL ? 0 : s->leader;
    if (number == 0 || number > 64) {
        reply(REPLY_ERROR, REQUEST_SIGNAL, id, EINVAL);
        return;
    }
    /* to the group that the leader founded by setsid; no leader any more, no signal (never to the group 0 or 1) */
    long result = leader <= 1 ? -ESRCH : sys(__NR_kill, -leader, number);
    reply(REPLY_SIGNALLED, 0, id, (int32_t)-result);
}

static void kill_command(const struct box *b, uint64_t id) {
    struct slot *s = slot_of_id(id);
    if (s == NULL) {
        reply(REPLY_ERROR, REQUEST_KILL, id, ESRCH); /* gone meanwhile, which the supervisor is about to read */
        return;
    }
    long count = s->state == SLOT_LOST ? kill_orphans(b) : kill_tree(b, s->shim);
    if (count < 0) {
        count = kill_everything();
    }
    if (s->state == SLOT_LIVE) {
        s->state = SLOT_DYING;
        pending++;
    }
    if (s->state == SLOT_DYING) {
        (void)sys(__NR_kill, s->shim, SYS_SIGCONT); /* its command may have stopped it: it has an end to tell */
    }
    reply(REPLY_KILLED, (uint32_t)count, id, 0);
}

static void hand(uint32_t kind, int fd) {
    if (fd < 0) {
        reply(REPLY_ERROR, kind, 0, EBADF);
        return;
    }
    struct reply r = {.kind = REPLY_FD, .code = kind};
    reply_fd(&r, fd);
}

static void obey(const struct box *b, const struct message *m) {
    switch ((enum request_kind)m->head.kind) {
    case REQUEST_RUN:
        run_command(b, m);
        return;
    case REQUEST_SIGNAL:
        signal_command(m->head.id, m->head.argument);
        return;
    case REQUEST_KILL:
        kill_command(b, m->head.id);
        return;
    case REQUEST_KILL_ALL:
        (void)kill_everything();
        reply(REPLY_KILLED, 0, m->head.id, 0);
        return;
    case REQUEST_HAND_WORKDIR:
        hand(REQUEST_HAND_WORKDIR, b->workdir);
        return;
    case REQUEST_HAND_NETLINK:
        hand(REQUEST_HAND_NETLINK, b->netlink);
        return;
    case REQUEST_SHUTDOWN:
        sys_exit(0); /* PID 1: the kernel kills the rest */
    case REQUEST_GO:
    case REQUEST_HAND_ROOT:
        break;
    }
    reply(REPLY_ERROR, m->head.kind, m->head.id, ENOSYS);
}

_Noreturn void serve(struct box *b, int signals) {
    static struct message m;
    long pause = PAUSE_LEAST;
    for (;;) {
        struct sys_pollfd wait[2] = {{CHANNEL, SYS_POLLIN, 0}, {signals, SYS_POLLIN, 0}};
        struct sys_timespec timeout = {0, pause};
        long ready = sys(__NR_ppoll, wait, 2, pending > 0 ? &timeout : NULL, 0, 0);
        if (ready == 0) {
            press_on(b);
            pause = pause < PAUSE_MOST ? pause * 2 : PAUSE_MOST;
            continue;
        }
        if (wait[1].revents != 0) {
            unsigned char drained[128]; /* struct signalfd_siginfo; SIGCHLD says only that somebody is to be reaped */
            (void)sys(__NR_read, signals, drained, sizeof drained);
            reap(b);
            pause = PAUSE_LEAST; /* something moved: look again soon, but once for many */
        }
        if (wait[0].revents != 0) {
            int got = receive(&m);
            if (got == 0) {
                sys_exit(0); /* the supervisor closed the channel, or is dead */
            }
            if (got < 0) {
                reply(REPLY_ERROR, m.head.kind, m.head.id, -got);
                continue;
            }
            obey(b, &m);
            release(&m);
        }
    }
}
