/* A file system being configured: fsopen, fsconfig, fsmount (the mount API since Linux 5.2). */
#include "init.h"

#include <linux/mount.h>

const char *decimal(char text[24], uint64_t value, unsigned base) {
    char *at = text + 23;
    *at = '\0';
    do {
        *--at = (char)('0' + value % base);
        value /= base;
    } while (value != 0);
    return at;
}

struct config config_open(const char *type) {
    long fd = sys(__NR_fsopen, type, FSOPEN_CLOEXEC);
    return (struct config){fd, fd < 0 ? fd : 0};
}

static void set(struct config *c, unsigned command, const char *key, const char *value) {
    if (c->error == 0) {
        long result = sys(__NR_fsconfig, c->fd, command, key, value, 0);
        c->error = result < 0 ? result : 0;
    }
}

void config_text(struct config *c, const char *key, const char *value) { set(c, FSCONFIG_SET_STRING, key, value); }

void config_flag(struct config *c, const char *key) { set(c, FSCONFIG_SET_FLAG, key, NULL); }

void config_number(struct config *c, const char *key, uint64_t value, unsigned base) {
    char text[24];
    config_text(c, key, decimal(text, value, base));
}

long config_mount(struct config *c, uint64_t attr) {
    set(c, FSCONFIG_CMD_CREATE, NULL, NULL);
    long mount = c->error != 0 ? c->error : sys(__NR_fsmount, c->fd, FSMOUNT_CLOEXEC, attr);
    if (c->fd >= 0) {
        sys_close((int)c->fd);
    }
    return mount;
}
