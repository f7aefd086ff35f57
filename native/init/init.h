/*
 * The init's own declarations, by file.
 *
 * Theory of operation. The supervisor clones this program into new namespaces with one socket and nothing else. It waits
 * for GO (the id maps are written meanwhile), checks the plan whole, carries it out step by step, reports READY or the step
 * that failed, and from then on serves requests. It is PID 1 and reaps everything.
 *
 *   init (PID 1)     privilege: all of its own user namespace until the plan drops it; then SETUID, SETGID, KILL or none
 *   shim             one for each command, a fork of init: subreaper, no capability, tells EXIT, stays while descendants live
 *   command          child of its shim: own session, command's ids, stdio and nothing else
 *
 * All of them confined by what the plan installed on init last: no_new_privs, Landlock, seccomp.
 */
#ifndef LEMNI_INIT_H
#define LEMNI_INIT_H

#include "check.h"
#include "protocol.h"
#include "sys.h"

#define CHANNEL 0 /* 1 and 2 are copies of it: a descriptor that arrives is then never 0, 1 or 2 */

/* --- channel.c: messages in, records out ------------------------------------------------------------------------- */

struct message {
    struct request head;
    const void *payload;  /* 8-byte aligned; valid until release */
    int fds[PLAN_FDS_MAX + 1];
    uint32_t fd_count;    /* without the payload's memfd */
    void *mapped;         /* payload that came in a memfd, or NULL */
};

/*
 * Take one message. 1: got one; 0: end of file (or the socket is broken, which is the same end); -errno: the message was no
 * good (it was consumed, its descriptors are closed, ``head`` holds what of it is known).
 */
int receive(struct message *m);
/* Close the descriptors and unmap the payload. */
void release(struct message *m);
/* Send one record, with one descriptor where ``fd`` >= 0. Blocks while the supervisor does not read; it asked for all of it. */
void reply_fd(const struct reply *r, int fd);
void reply(uint32_t kind, uint32_t code, uint64_t id, int32_t error);

/* --- plan.c, mounts.c: the plan ---------------------------------------------------------------------------------- */

struct box {
    int root;             /* the new root, or -1 */
    int workdir, netlink, proc, ruleset;
    uint32_t uid, gid;    /* of commands; NOTHING: as init */
    const int *fds;       /* the plan's descriptors */
    const char *arena;
};

/* Carry out all operations. 0, or -errno with ``*step`` the one that failed. */
long execute(const struct plan *p, struct box *b, uint32_t *step);

long mount_new_root(struct box *b, const struct plan_op *op);
long mount_dir(struct box *b, const struct plan_op *op);
long mount_file(struct box *b, const struct plan_op *op);
long mount_symlink(struct box *b, const struct plan_op *op);
long mount_bind(struct box *b, const struct plan_op *op);
long mount_moved(struct box *b, const struct plan_op *op);
long mount_tmpfs(struct box *b, const struct plan_op *op);
long mount_proc(struct box *b, const struct plan_op *op);
long mount_pts(struct box *b, const struct plan_op *op);
long mount_mqueue(struct box *b, const struct plan_op *op);
long mount_overlay(struct box *b, const struct plan_op *op);
long mount_read_only(struct box *b, const struct plan_op *op);
long mount_detach(struct box *b, const struct plan_op *op);
long mount_pivot(struct box *b);
long open_below(struct box *b, const struct plan_op *op);
/* Open a path of the new view for reading through (O_PATH). ``follow``: symbolic links, kept inside the new root. */
long open_inside(struct box *b, const char *path, uint64_t flags, bool follow);
/* Open the directory behind a descriptor of another mount namespace again, by its path in ours, and make sure it is the same. */
long adopt_directory(int fd);

/* --- command.c: shims and their children ------------------------------------------------------------------------- */

enum slot_state { SLOT_FREE = 0, SLOT_LIVE, SLOT_DYING, SLOT_LOST };

/* One live command. In memory shared with its shim and, until execve, its child: they write ``leader`` and ``told`` only. */
struct slot {
    uint64_t id;
    int32_t shim;
    volatile int32_t leader; /* pid of the first process while it is not reaped, else 0 */
    volatile uint32_t told;  /* EXIT or RUN_FAILED was sent */
    uint32_t state;
    uint32_t attempts;
};

extern struct slot *slots;
extern uint32_t slot_top;  /* slots beyond were never used */

long slots_make(void);
struct slot *slot_of_id(uint64_t id);
struct slot *slot_of_shim(int pid);
void run_command(const struct box *b, const struct message *m);

/* --- tree.c: killing what a command started ---------------------------------------------------------------------- */

/* SIGKILL to all descendants of this live shim. Number of processes found, zombies too, or -errno: /proc cannot be read. */
long kill_tree(const struct box *b, int shim);
/* SIGKILL to whatever hangs below PID 1 and is neither a live shim nor below one. Same result. */
long kill_orphans(const struct box *b);

/* --- serve.c ------------------------------------------------------------------------------------------------------ */

_Noreturn void serve(struct box *b, int signals);

#endif
