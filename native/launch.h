/* The launcher's calls, as cffi declares them to Python (native/launch_build.py) and launch.c defines them. */
#ifndef LEMNI_LAUNCH_H
#define LEMNI_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

/* How far a launch came that failed. */
enum lemni_stage {
    LEMNI_STAGE_NONE = 0,
    LEMNI_STAGE_SOCKET = 1,
    LEMNI_STAGE_CLONE = 2,    /* the namespaces, or the cgroup */
    LEMNI_STAGE_EXEC = 3,     /* capabilities, or execveat of the init */
    LEMNI_STAGE_SETGROUPS = 4,
    LEMNI_STAGE_UID_MAP = 5,
    LEMNI_STAGE_GID_MAP = 6,
    LEMNI_STAGE_PLAN = 7      /* sending it */
};

struct lemni_launched {
    int pid, pidfd, channel;
    int stage;                /* where it failed */
    int first_size;           /* bytes of ``first`` received */
    unsigned char first[64];  /* the first record, when it came within ready_ms */
};

int lemni_launch(int init_fd, int cgroup_fd, int cgroup_namespace, const char *uid_map, size_t uid_map_size,
                 const char *gid_map, size_t gid_map_size, int deny_setgroups, const void *plan, size_t plan_size,
                 const int *fds, unsigned fd_count, int ready_ms, struct lemni_launched *out);
int lemni_send(int channel, uint32_t kind, uint32_t flags, uint64_t id, uint32_t argument, const void *payload, size_t size,
               const int *fds, unsigned fd_count);
int lemni_sealed_program(const char *path);
int lemni_user_namespace(const char *uid_map, size_t uid_map_size, const char *gid_map, size_t gid_map_size);
int lemni_detached_mount(int directory, int userns, int recursive);
int lemni_landlock_abi(void);

#endif
