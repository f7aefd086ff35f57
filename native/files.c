/* System calls on files that Python lacks: beneath a directory descriptor, and optionally as another file-system identity.
 *
 * Every function returns a result >= 0 or a negative errno; none touches errno of the caller. A call "as" (uid, gid) switches
 * the file-system ids of this thread and puts them back before it returns, inside one C call: no Python code, no signal handler
 * of Python and no other thread ever runs under the switched ids. uid or gid -1 leaves that id alone.
 *
 * Why switch at all: an overlay mounted in a sandbox's user namespace maps the sandbox's host ids only. A supervisor that is the
 * host's root is not mapped there, and creating a file answers EOVERFLOW. As root loses CAP_DAC_OVERRIDE with the switch, the
 * kernel also checks permissions as it would for the sandbox's own commands.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef FICLONE
#define FICLONE _IOW(0x94, 9, int)
#endif

struct how { /* struct open_how of <linux/openat2.h>, spelled out for older headers */
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

struct ids {
    int uid, gid; /* what was there before, or -1 when it was not switched */
};

/* Group first: changing it needs the capability that the other order would have lost already. */
static int enter(struct ids *old, int64_t uid, int64_t gid) {
    old->uid = old->gid = -1;
    if (gid >= 0) {
        int before = setfsgid((gid_t)gid);
        if ((gid_t)setfsgid((gid_t)-1) != (gid_t)gid)
            return -EPERM;
        old->gid = before;
    }
    if (uid >= 0) {
        int before = setfsuid((uid_t)uid);
        if ((uid_t)setfsuid((uid_t)-1) != (uid_t)uid) {
            if (old->gid != -1)
                setfsgid((gid_t)old->gid);
            return -EPERM;
        }
        old->uid = before;
    }
    return 0;
}

/* Back to the ids that the thread had: always permitted, they are its real or effective ids. */
static void leave(const struct ids *old) {
    if (old->uid != -1)
        setfsuid((uid_t)old->uid);
    if (old->gid != -1)
        setfsgid((gid_t)old->gid);
}

#define AS(uid, gid, expression)                                                                                               \
    do {                                                                                                                       \
        struct ids old;                                                                                                        \
        int refused = enter(&old, uid, gid);                                                                                   \
        if (refused < 0)                                                                                                       \
            return refused;                                                                                                    \
        long done = (expression);                                                                                              \
        int result = done < 0 ? -errno : (int)done;                                                                            \
        leave(&old);                                                                                                           \
        return result;                                                                                                         \
    } while (0)

int files_open(int directory, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve, int64_t uid, int64_t gid) {
    struct how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve};
    AS(uid, gid, syscall(SYS_openat2, directory, path, &how, sizeof how));
}

int files_mkdir(int directory, const char *name, unsigned mode, int64_t uid, int64_t gid) {
    AS(uid, gid, mkdirat(directory, name, mode));
}

int files_unlink(int directory, const char *name, int flags, int64_t uid, int64_t gid) {
    AS(uid, gid, unlinkat(directory, name, flags));
}

int files_rename(int from, const char *old_name, int to, const char *new_name, unsigned flags, int64_t uid, int64_t gid) {
    AS(uid, gid, syscall(SYS_renameat2, from, old_name, to, new_name, flags));
}

/* An overlay's whiteout: character device 0:0, which the kernel lets anybody make because it opens nothing. */
int files_whiteout(int directory, const char *name, int64_t uid, int64_t gid) {
    AS(uid, gid, mknodat(directory, name, S_IFCHR, makedev(0, 0)));
}

int files_clone(int to, int from) {
    return ioctl(to, FICLONE, from) < 0 ? -errno : 0;
}

struct record { /* struct linux_dirent64 */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

/* One getdents64, repacked in place as NUL (type letter, name, NUL)...: names only, no inode is touched. Returns the bytes packed,
 * 0 at the end. The packed form is shorter than what the kernel wrote, record by record, so reading stays ahead of writing. */
long files_names(int directory, char *buffer, size_t size) {
    long got;
    size_t out = 1;
again:
    got = syscall(SYS_getdents64, directory, buffer, size);
    if (got <= 0)
        return got < 0 ? -errno : 0;
    for (long at = 0; at < got;) {
        struct record entry;
        memcpy(&entry, buffer + at, offsetof(struct record, name));
        const char *name = buffer + at + offsetof(struct record, name);
        at += entry.length;
        if (name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0)))
            continue;
        size_t length = strlen(name);
        unsigned char type = entry.type; /* DT_ constants: 4 directory, 8 regular, 10 link, 0 unknown */
        memmove(buffer + out + 1, name, length + 1);
        buffer[out] = type == 4 ? 'd' : type == 8 ? 'f' : type == 10 ? 'l' : type == 0 ? '?' : 'o';
        out += length + 2;
    }
    if (out == 1)
        goto again; /* only "." and ".." in this batch: 0 would say that the directory ends here */
    buffer[0] = 0;
    return (long)out;
}

/*
 * Of a packed batch, keep the regular files that their reader may not open; returns the bytes kept (1: none). As ``owner`` and
 * ``group`` (-1: the caller) by the modes alone, and directories too: a sandbox of root's shows the owner's files as its own,
 * and all others as nobody's. A file that is gone is left out.
 */
long files_unreadable(int directory, char *batch, size_t size, int64_t owner, int64_t group) {
    size_t out = 1;
    for (size_t at = 1; at < size;) {
        const char *record = batch + at;
        size_t length = strlen(record);
        int closed = 0;
        if (record[0] == 'f' && owner < 0) {
            closed = syscall(SYS_faccessat2, directory, record + 1, R_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) < 0 && errno == EACCES;
        } else if (owner >= 0 && (record[0] == 'f' || record[0] == 'd')) {
            struct stat st;
            if (fstatat(directory, record + 1, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                mode_t needed = record[0] == 'd' ? S_IROTH | S_IXOTH : S_IROTH;
                needed <<= st.st_uid == (uid_t)owner ? 6 : st.st_gid == (gid_t)group ? 3 : 0;
                closed = (st.st_mode & needed) != needed;
            }
        }
        if (closed) {
            memmove(batch + out, record, length + 1);
            out += length + 1;
        }
        at += length + 1;
    }
    return (long)out;
}
