/* The launcher's calls, as cffi declares them to Python (native/launch_build.py) and launch.c, sealed.c, detached.c and links.c define them. */
#ifndef LEMNI_LAUNCH_H
#define LEMNI_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#define LEMNI_LINK_NAME 16    /* bytes of a link's name with its NUL, as IFNAMSIZ */

/* How far a launch came that failed. */
enum lemni_stage {
    LEMNI_STAGE_NONE = 0,
    LEMNI_STAGE_SOCKET = 1,
    LEMNI_STAGE_CLONE = 2,    /* the namespaces, or the cgroup */
    LEMNI_STAGE_EXEC = 3,     /* capabilities, or execveat of the init */
    LEMNI_STAGE_SETGROUPS = 4,
    LEMNI_STAGE_UID_MAP = 5,
    LEMNI_STAGE_GID_MAP = 6
};

struct lemni_launched {
    int pid, pidfd, channel;
    int stage;                /* where it failed */
    void *birth;              /* memory that the child runs on, until it has left it */
};

int lemni_begin(int init_fd, int cgroup_fd, int cgroup_namespace, struct lemni_launched *out);
int lemni_settle(const char *uid_map, size_t uid_map_size, const char *gid_map, size_t gid_map_size, int deny_setgroups,
                 struct lemni_launched *out);
void lemni_abandon(struct lemni_launched *out);
int lemni_user_namespace(const char *uid_map, size_t uid_map_size, const char *gid_map, size_t gid_map_size);
int lemni_landlock_abi(void);

/* sealed.c */
int lemni_send(int channel, uint32_t kind, uint32_t flags, uint64_t id, uint32_t argument, const void *payload, size_t size,
               const int *fds, unsigned fd_count);
int lemni_sealed_program(const char *path);

/* detached.c */
int lemni_detached_mount(int directory, int userns);

/* links.c */
int lemni_link_up(int netlink, const char *allowed, char *name);

#endif
