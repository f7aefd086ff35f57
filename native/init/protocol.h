/*
 * What crosses the control channel, and nothing else: the plan, requests to the init, its replies.
 *
 * One SOCK_SEQPACKET pair, one record a message, little structs in the machine's own byte order (both ends are one
 * machine). supervisor/sandbox/wire.py says the same in Python; a test compares every number and offset of the two.
 * Shared by native/init (freestanding) and native/launch.c (hosted).
 */
#ifndef LEMNI_PROTOCOL_H
#define LEMNI_PROTOCOL_H

#include <stdint.h>

#define PROTOCOL_VERSION 1u
#define PLAN_MAGIC "LEMNIPLN"            /* 8 bytes, no NUL */
#define NOTHING 0xffffffffu              /* no descriptor, no id, no step */

#define INLINE_MAX (60u * 1024u)         /* larger payloads travel in a sealed memfd: a message is bounded by SO_SNDBUF */
#define PAYLOAD_MAX (2u * 1024u * 1024u + 128u * 1024u) /* execve's own bound on argv and environment, and room for a plan */
#define PLAN_OPS_MAX 4096u
#define PLAN_FDS_MAX 200u                /* SCM_MAX_FD is 253 */
#define PATH_LENGTH_MAX 4095u
#define BPF_LENGTH_MAX (4096u * 8u)      /* BPF_MAXINSNS of struct sock_filter */
#define ARGC_MAX 65536u
#define RLIMITS_MAX 16u
#define COMMANDS_MAX 1024u               /* live commands, those with background processes included */

/* --- the plan -------------------------------------------------------------------------------------------------- */

struct plan_header {
    char magic[8];
    uint32_t version;
    uint32_t size;        /* of the whole plan, header included */
    uint32_t ops;         /* struct plan_op follow the header at once */
    uint32_t fds;         /* descriptors that travel with the plan */
    uint32_t arena;       /* offset of the arena = header + ops */
    uint32_t arena_size;
};

struct plan_op {
    uint32_t kind;        /* enum op_kind */
    uint32_t flags;       /* MOUNT_*: see the list below */
    uint32_t fd[3];       /* indexes into the plan's descriptors, or NOTHING */
    uint32_t mode;
    uint32_t uid, gid;    /* NOTHING keeps */
    uint32_t path, path_length; /* offset in the arena; NUL-terminated there */
    uint32_t data, data_length; /* second text or bytes; NUL-terminated there too */
    uint64_t number[3];
};

enum op_kind {
    OP_CGROUP_JOIN = 1,
    OP_UNSHARE_CGROUP = 2,
    OP_TAKE_IDS = 3,
    OP_NEW_ROOT = 4,
    OP_DIR = 5,
    OP_FILE = 6,
    OP_SYMLINK = 7,
    OP_BIND = 8,
    OP_MOVE_MOUNT = 9,
    OP_TMPFS = 10,
    OP_PROC = 11,
    OP_DEV_PTS = 12,
    OP_MQUEUE = 13,
    OP_OVERLAY = 14,
    OP_READ_ONLY = 15,
    OP_HAND_OVER = 16,
    OP_PIVOT = 17,
    OP_HOSTNAME = 18,
    OP_LOOPBACK_UP = 19,
    OP_KEYRING = 20,
    OP_RLIMIT = 21,
    OP_OPEN_NETLINK = 22,
    OP_OPEN_WORKDIR = 23,
    OP_COMMAND_IDS = 24,
    OP_NON_DUMPABLE = 25,
    OP_DROP_CAPS = 26,
    OP_NO_NEW_PRIVS = 27,
    OP_LANDLOCK_RULESET = 28,
    OP_LANDLOCK_RULE = 29,
    OP_LANDLOCK_ENFORCE = 30,
    OP_SECCOMP = 31,
    OP_OPEN_BELOW = 32,
    OP_BEGIN_OVERLAYS = 33,
    OP_ADOPT_ROOT = 34,
    OP_DROP_BOUNDING = 35,
    OP_KINDS = 36         /* one past the last */
};

enum {                    /* flags of an operation */
    FLAG_RO = 1,
    FLAG_NOSUID = 2,
    FLAG_NODEV = 4,
    FLAG_NOEXEC = 8,
    FLAG_RECURSIVE = 16,
    FLAG_OPTIONAL = 32,
    FLAG_CLEAR_GROUPS = 64,  /* TakeIds */
    FLAG_USERXATTR = 128,    /* Overlay */
    FLAG_VOLATILE = 256,     /* Overlay */
    FLAG_OUTSIDE = 512,      /* MoveMount: over the old root, before the pivot, and goes with it */
    FLAG_INSIDE = 1024       /* Bind: the source is a path of the new view */
};

enum plan_fault {         /* FAILED with step NOTHING: why the plan was not begun; in number[0] */
    FAULT_NONE = 0,
    FAULT_HEADER = 1,     /* magic, version, size, counts */
    FAULT_KIND = 2,
    FAULT_FLAGS = 3,
    FAULT_FD = 4,
    FAULT_ID = 5,         /* uid, gid, mode */
    FAULT_PATH = 6,
    FAULT_DATA = 7,
    FAULT_NUMBER = 8,
    FAULT_MESSAGE = 9,    /* the GO message itself: short, unsealed, truncated */
    FAULT_NETWORK = 10    /* no fault of the plan: the network namespace could not be made or entered; error says why */
};

/* --- requests: supervisor to init ------------------------------------------------------------------------------ */

struct request {
    uint32_t kind;        /* enum request_kind */
    uint32_t flags;       /* IN_MEMFD, ANNOUNCE, MORE, QUIET */
    uint64_t id;          /* of the command: the supervisor's, never used twice in one sandbox */
    uint32_t argument;    /* SIGNAL: signal number */
    uint32_t size;        /* of the payload: it follows, or is the content of the first descriptor */
};

enum request_kind {
    REQUEST_GO = 1,           /* payload: the plan; descriptors: the plan's */
    REQUEST_RUN = 2,          /* payload: struct run and its strings; descriptors: stdin, stdout, stderr */
    REQUEST_SIGNAL = 3,       /* to the process group of the command's first process, from its setsid to its end */
    REQUEST_KILL = 4,         /* SIGKILL to every process of the command, whatever it did */
    REQUEST_KILL_ALL = 5,     /* SIGKILL to every process but the init */
    REQUEST_HAND_WORKDIR = 6,
    REQUEST_HAND_NETLINK = 7,
    REQUEST_SHUTDOWN = 8,     /* the init exits, and the namespace with it: no reply but end of file */
    REQUEST_HAND_ROOT = 9     /* by a plan only (HandOver): afterwards init may not */
};

enum {
    IN_MEMFD = 1,             /* the payload is the content of the first descriptor, a sealed memfd */
    ANNOUNCE = 2,             /* RUN: send STARTED when execve has succeeded */
    MORE = 4,                 /* GO: another GO follows with more of the plan */
    QUIET = 8                 /* GO: without a READY at its end */
};

struct run_limit {
    uint32_t resource;
    uint32_t zero;
    uint64_t soft, hard;
};

struct run {
    uint32_t argc, envc;      /* argc >= 1 */
    uint32_t limits;          /* struct run_limit follow this header at once, then the strings */
    uint32_t zero;
    /* strings, each NUL-terminated: cwd (relative to the working directory), argv..., envp... and nothing after */
};

/* --- replies: init to supervisor ------------------------------------------------------------------------------- */

struct reply {
    uint32_t kind;            /* enum reply_kind */
    uint32_t code;            /* meaning below */
    uint64_t id;
    int32_t error;            /* errno, or 0 */
    uint32_t detail;
    uint64_t number[3];
};

enum reply_kind {
    REPLY_READY = 1,
    REPLY_FAILED = 2,         /* code: step or NOTHING; detail: op kind; error; number: plan_fault, part. Then the init exits */
    REPLY_STARTED = 3,        /* id; code: pid inside */
    REPLY_RUN_FAILED = 4,     /* id; code: run_stage; error. GONE follows */
    REPLY_EXIT = 5,           /* id; code: wait status; number: utime us, stime us, max rss bytes. GONE follows, later */
    REPLY_GONE = 6,           /* id; code: 1 when EXIT or RUN_FAILED was sent before, 0 when the command killed its shim */
    REPLY_KILLED = 7,         /* id; code: processes signalled. GONE follows */
    REPLY_SIGNALLED = 8,      /* id; error: 0 or ESRCH */
    REPLY_FD = 9,             /* code: request kind; one descriptor */
    REPLY_ERROR = 10          /* code: request kind; id; error: why the request was not carried out */
};

enum run_stage {
    STAGE_REQUEST = 1,        /* the payload: strings, counts */
    STAGE_FORK = 2,           /* shim or child: EAGAIN at the process limit, or COMMANDS_MAX commands live */
    STAGE_SESSION = 3,
    STAGE_STDIO = 4,
    STAGE_LIMITS = 5,
    STAGE_IDS = 6,
    STAGE_CWD = 7,
    STAGE_EXEC = 8
};

#endif
