/*
 * What crosses to an init: its program, as a sealed copy in memory, and messages, a large payload in another.
 *
 * A sealed memfd cannot change under its reader: no later change of an installed file reaches a sandbox, and what init has
 * checked is what it carries out. Every function returns >= 0, or -errno; none touches Python.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/protocol.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

/* A sealed memfd with this content. */
static int sealed_copy(const char *name, const void *content, size_t size, unsigned extra) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | extra);
    if (fd < 0) {
        return -errno;
    }
    int error = 0;
    for (size_t done = 0; error == 0 && done < size;) {
        ssize_t wrote = write(fd, (const char *)content + done, size - done);
        if (wrote < 0) {
            error = errno == EINTR ? 0 : errno;
        } else {
            done += (size_t)wrote;
        }
    }
    if (error == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
        error = errno;
    }
    if (error != 0) {
        (void)close(fd);
        return -error;
    }
    return fd;
}

/*
 * Send one request as one message. A payload over INLINE_MAX goes into a sealed memfd, the first descriptor. Does not block
 * on a non-blocking channel: -EAGAIN, and nothing was sent.
 */
int lemni_send(int channel, uint32_t kind, uint32_t flags, uint64_t id, uint32_t argument, const void *payload, size_t size,
               const int *fds, unsigned fd_count) {
    if (fd_count > PLAN_FDS_MAX || size > PAYLOAD_MAX) {
        return -E2BIG;
    }
    struct request head = {.kind = kind, .flags = flags & ~(uint32_t)IN_MEMFD, .id = id, .argument = argument, .size = (uint32_t)size};
    int all[PLAN_FDS_MAX + 1];
    unsigned count = 0;
    int memfd = -1;
    if (size > INLINE_MAX) {
        memfd = sealed_copy("lemni-payload", payload, size, 0);
        if (memfd < 0) {
            return memfd;
        }
        head.flags |= IN_MEMFD;
        all[count++] = memfd;
    }
    if (fd_count > 0) {
        memcpy(all + count, fds, fd_count * sizeof(int));
        count += fd_count;
    }
    struct iovec iov[2] = {{&head, sizeof head}, {(void *)payload, size}}; /* sendmsg does not write to it */
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = memfd >= 0 || size == 0 ? 1 : 2};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof all)];
    } control;
    if (count > 0) {
        memset(&control.head, 0, sizeof control.head);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), all, count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(channel, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    int result = sent < 0 ? -errno : 0;
    if (memfd >= 0) {
        (void)close(memfd);
    }
    return result;
}

/*
 * A descriptor to execute the program at ``path`` from: a sealed memfd, which no later change of the file reaches. Where
 * memfds may not be executed (vm.memfd_noexec=2) the caller takes the file itself.
 */
int lemni_sealed_program(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -errno;
    }
    struct stat st;
    void *content = MAP_FAILED;
    int result = fstat(file, &st) < 0 ? -errno : 0;
    if (result == 0) {
        content = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        result = content == MAP_FAILED ? -errno : 0;
    }
    if (result == 0) {
        result = sealed_copy("lemni-init", content, (size_t)st.st_size, MFD_EXEC);
        if (result == -EINVAL) { /* before Linux 6.3 there was no flag, and every memfd executable */
            result = sealed_copy("lemni-init", content, (size_t)st.st_size, 0);
        }
        (void)munmap(content, (size_t)st.st_size);
    }
    (void)close(file);
    return result;
}
