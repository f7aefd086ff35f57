/*
 * The init's own declarations, by file.
 *
 * Theory of operation. The supervisor clones this program into new namespaces with one socket and nothing else. It waits
 * for GO (the id maps are written meanwhile), checks the plan's part that came with it, carries it out step by step, does so
 * with the parts that follow, reports READY or the step that failed, and from then on serves requests. It is PID 1 and reaps
 * everything. What takes long while it builds is done by a thread of it, gone before READY (beside.c).
 *
 *   init (PID 1)     privilege: all of its own user namespace until the plan drops it; then SETUID, SETGID, KILL or none
 *   shim             one for each command, on init's memory: subreaper, no capability, tells EXIT, stays while descendants live
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
    bool bounded;         /* the bounding set is empty */
    bool networked;       /* in a network namespace of its own */
    bool unconnected;     /* there is none to be had */
    uint32_t uid, gid;    /* of commands; NOTHING: as init */
    const int *fds;       /* the plan's descriptors */
    const char *arena;
};

/* Carry out all operations. 0, or -errno with ``*step`` the one that failed. */
long execute(const struct plan *p, struct box *b, uint32_t *step);

/* Of the calling thread. */
long take_ids(const struct plan_op *op);
long mount_new_root(struct box *b, const struct plan_op *op);
long mount_adopted_root(struct box *b, const struct plan_op *op);
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
long mount_pivot(struct box *b);
long open_below(struct box *b, const struct plan_op *op);
/* Open a path of the new view for reading through (O_PATH). ``follow``: symbolic links, kept inside the new root. */
long open_inside(struct box *b, const char *path, uint64_t flags, bool follow);
/* Let go of the directory that was kept open for the next target. Before the plan's arena goes. */
void forget_parent(void);
/*
 * Move a detached mount onto a new-view path, making the mount point where it is missing. Takes ``mount`` (which may be an
 * error: it is handed through). A link as the last component is not followed.
 */
long mount_attach(struct box *b, long mount, const char *target, uint32_t length, bool directory);

/* --- overlay.c: the working copies ------------------------------------------------------------------------------- */

/*
 * An overlay takes only layers of its own mount namespace, and the supervisor's descriptors belong to the supervisor's. They
 * are opened again here, before TakeIds: the scratch lies in a directory that the session's own id may not search.
 */
long adopt_layers(const struct plan *p, const struct box *b, uint32_t *step);
/* The plan's overlays may be made beside from now on: their layers are in this namespace. Once; plan and box stay. */
void overlays_begin(const struct plan *p, const struct box *b);
/* None, or no more, will be begun. */
void overlays_end(void);
/* The thread's part: wait until they are begun, and make those that nobody has claimed. */
void overlays_make(void);

/* --- config.c: a file system being configured --------------------------------------------------------------------- */

/* The first error sticks, so that a caller looks once. */
struct config {
    long fd;
    long error;
};

struct config config_open(const char *type);
void config_text(struct config *c, const char *key, const char *value);
void config_flag(struct config *c, const char *key);
void config_number(struct config *c, const char *key, uint64_t value, unsigned base);
/* Create and mount, detached; ends the configuration. The mount's descriptor, or -errno. */
long config_mount(struct config *c, uint64_t attr);
/* ``value`` as digits, somewhere in ``text``. */
const char *decimal(char text[24], uint64_t value, unsigned base);

/* --- beside.c: a thread while the sandbox is built ------------------------------------------------------------------ */

/* Make it. It waits. Where none can be made, what follows does without. */
void beside_begin(void);
/* Let it make the network namespace, then what of the overlays nobody has claimed; on another processor, where there is one. */
void beside_go(void);
/* Wait until it is gone. */
void beside_end(void);
/* Wait for the network namespace and enter it, once. Nothing of a sandbox is served outside of it. */
long network_enter(struct box *b);
/* Set a word that somebody waits for; wait until one has this value. */
void post(int *word);
void await(int *word, int until);

/* --- command.c: shims and their children ------------------------------------------------------------------------- */

enum slot_state { SLOT_FREE = 0, SLOT_LIVE, SLOT_DYING, SLOT_LOST };

/* One live command. Its shim and, until execve, its child write ``leader`` and ``told`` only. */
struct slot {
    uint64_t id;
    struct pad *pad; /* what they run on */
    int32_t shim;
    volatile int32_t leader; /* pid of the first process while it is not reaped, else 0 */
    volatile uint32_t told;  /* EXIT or RUN_FAILED was sent */
    uint32_t state;
    uint32_t attempts;
};

extern struct slot slots[COMMANDS_MAX];
extern uint32_t slot_top;  /* slots beyond were never used */

struct slot *slot_of_id(uint64_t id);
struct slot *slot_of_shim(int pid);
/* None of the command is left: its memory goes, the slot is free. */
void slot_release(struct slot *s);
void run_command(const struct box *b, const struct message *m);

/* --- tree.c: killing what a command started ---------------------------------------------------------------------- */

/* SIGKILL to all descendants of this live shim. Number of processes found, zombies too, or -errno: /proc cannot be read. */
long kill_tree(const struct box *b, int shim);
/* SIGKILL to whatever hangs below PID 1 and is neither a live shim nor below one. Same result. */
long kill_orphans(const struct box *b);

/* --- serve.c ------------------------------------------------------------------------------------------------------ */

_Noreturn void serve(struct box *b, int signals);

#endif
