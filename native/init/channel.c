/* The control channel: one message is one record, with descriptors beside it. */
#include "init.h"

#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/stat.h>

#define CONTROL_SIZE (sizeof(struct sys_cmsghdr) + sizeof(int) * 256) /* the kernel sends 253 at most */

static union {
    uint64_t aligned;
    unsigned char bytes[sizeof(struct request) + INLINE_MAX];
} buffer;

static union {
    struct sys_cmsghdr head;
    unsigned char bytes[CONTROL_SIZE];
} control;

/* Keep the first descriptors, close what is too many (each was installed in our table: none may stay behind unnoticed). */
static bool take_fds(struct message *m, size_t length) {
    m->fd_count = 0;
    if (length < sizeof control.head) {
        return true;
    }
    if (control.head.level != SYS_SOL_SOCKET || control.head.type != SYS_SCM_RIGHTS || control.head.length > length) {
        return false;
    }
    const int *fds = (const int *)(control.bytes + sizeof control.head);
    size_t count = (control.head.length - sizeof control.head) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
        if (m->fd_count < PLAN_FDS_MAX + 1) {
            m->fds[m->fd_count++] = fds[i];
        } else {
            sys_close(fds[i]);
        }
    }
    return count <= PLAN_FDS_MAX + 1;
}

/* Map the payload that is the content of the first descriptor. Sealed, or the sender could change it after the check. */
static long map_payload(struct message *m) {
    if (m->fd_count == 0 || m->head.size == 0 || m->head.size > PAYLOAD_MAX) {
        return -EPROTO;
    }
    int fd = m->fds[0];
    const long wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    long seals = sys(__NR_fcntl, fd, F_GET_SEALS);
    struct statx st;
    long result = seals < 0 || (seals & wanted) != wanted ? -EPROTO : sys(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_SIZE, &st);
    if (result >= 0 && st.stx_size != m->head.size) {
        result = -EPROTO;
    }
    if (result >= 0) {
        result = sys(__NR_mmap, 0, m->head.size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    sys_close(fd);
    m->fd_count--;
    for (uint32_t i = 0; i < m->fd_count; i++) {
        m->fds[i] = m->fds[i + 1];
    }
    if (result < 0 && result > -4096) {
        return result;
    }
    m->mapped = (void *)result;
    m->payload = m->mapped;
    return 0;
}

int receive(struct message *m) {
    struct sys_iovec iov = {buffer.bytes, sizeof buffer.bytes};
    struct sys_msghdr h = {.iov = &iov, .iov_length = 1, .control = control.bytes, .control_length = sizeof control.bytes};
    m->head = (struct request){0};
    m->mapped = NULL;
    m->payload = buffer.bytes + sizeof m->head;
    m->fd_count = 0;
    long got;
    do {
        got = sys(__NR_recvmsg, CHANNEL, &h, SYS_MSG_CMSG_CLOEXEC); /* cloexec: no descriptor survives into a command */
    } while (got == -EINTR);
    if (got <= 0) {
        return 0; /* an empty message is the end of a sequenced-packet socket, and our supervisor sends none */
    }
    bool whole = take_fds(m, h.control_length) && !(h.flags & (SYS_MSG_TRUNC | SYS_MSG_CTRUNC));
    long result = -EPROTO;
    if ((size_t)got >= sizeof m->head) {
        memcpy(&m->head, buffer.bytes, sizeof m->head);
        if (whole && m->head.flags & IN_MEMFD) {
            result = (size_t)got == sizeof m->head ? map_payload(m) : -EPROTO;
        } else if (whole && m->head.size == (size_t)got - sizeof m->head) {
            result = 0;
        }
    }
    if (result < 0) {
        release(m);
        return (int)result;
    }
    return 1;
}

void release(struct message *m) {
    for (uint32_t i = 0; i < m->fd_count; i++) {
        sys_close(m->fds[i]);
    }
    m->fd_count = 0;
    if (m->mapped != NULL) {
        (void)sys(__NR_munmap, m->mapped, m->head.size);
        m->mapped = NULL;
    }
}

void reply_fd(const struct reply *r, int fd) {
    struct sys_iovec iov = {(void *)r, sizeof *r};
    struct sys_msghdr h = {.iov = &iov, .iov_length = 1};
    struct {
        struct sys_cmsghdr head;
        int fd;
        int padding;
    } rights = {{sizeof(struct sys_cmsghdr) + sizeof(int), SYS_SOL_SOCKET, SYS_SCM_RIGHTS}, fd, 0};
    if (fd >= 0) {
        h.control = &rights;
        h.control_length = sizeof rights;
    }
    /* NOSIGNAL: a supervisor that is gone is an end of file, seen by the next receive, and no signal */
    while (sys(__NR_sendmsg, CHANNEL, &h, SYS_MSG_NOSIGNAL) == -EINTR) {
    }
}

void reply(uint32_t kind, uint32_t code, uint64_t id, int32_t error) {
    struct reply r = {.kind = kind, .code = code, .id = id, .error = error};
    reply_fd(&r, -1);
}
