/*
 * Mutates valid plans and payloads and gives them to the init's checker, in a heap block of their exact size (so that
 * AddressSanitizer sees one byte too far), then uses what was accepted the way the init does.
 *
 * usage: check_fuzz SEED ROUNDS FILE...   each FILE: one byte 'p' or 'r', then the plan or payload
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../native/init/check.h"

static uint64_t state;

static uint32_t pick(uint32_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return bound == 0 ? 0 : (uint32_t)(state >> 11) % bound;
}

static void must(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "accepted, and yet: %s\n", what);
        abort();
    }
}

static volatile unsigned sink;

static void use_plan(const struct plan *p, uint32_t fds) {
    for (uint32_t i = 0; i < p->count; i++) {
        const struct plan_op *op = &p->ops[i];
        must(op->kind > 0 && op->kind < OP_KINDS, "kind");
        if (op->path_length != 0) {
            must(strlen(p->arena + op->path) == op->path_length && op->path_length <= PATH_LENGTH_MAX, "path");
            must(strstr(p->arena + op->path, "/../") == NULL, "path with ..");
        }
        for (uint32_t k = 0; k < op->data_length; k++) {
            sink += (unsigned char)p->arena[op->data + k];
        }
        for (int k = 0; k < 3; k++) {
            must(op->fd[k] == NOTHING || op->fd[k] < fds, "descriptor");
        }
        must(op->kind != OP_SECCOMP || op->data_length / 8 <= 4096, "filter");
    }
}

static void use_run(const struct run_strings *r, const char *end) {
    const char *text = r->first;
    for (uint32_t i = 0; i < 1 + r->argc + r->envc; i++) {
        must(text < end, "string beyond the payload");
        text += strlen(text) + 1;
    }
    must(text == end, "strings end with the payload");
    for (uint32_t i = 0; i < r->limit_count; i++) {
        sink += (unsigned)r->limits[i].soft;
    }
}

static void mutate(unsigned char *data, size_t size) {
    static const uint32_t odd[] = {0, 1, 7, 8, 31, 32, 71, 72, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    for (uint32_t n = 1 + pick(4); n > 0 && size >= 4; n--) {
        uint32_t at = pick((uint32_t)size);
        if (pick(2)) {
            data[at] = (unsigned char)pick(256);
        } else {
            uint32_t value = odd[pick(sizeof odd / sizeof odd[0])] + pick(3) - 1;
            at = at / 4 * 4;
            if (at + 4 <= size) {
                memcpy(data + at, &value, 4);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 4) {
        return 2;
    }
    state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    unsigned accepted = 0;
    for (long round = 0, rounds = atol(argv[2]); round < rounds; round++) {
        FILE *file = fopen(argv[3 + pick((uint32_t)argc - 3)], "rb");
        static unsigned char seed[1 << 20];
        size_t size = fread(seed, 1, sizeof seed, file);
        fclose(file);
        size = size - 1 - (pick(4) == 0 ? pick((uint32_t)size) : 0);
        unsigned char *data = malloc(size ? size : 1);
        memcpy(data, seed + 1, size);
        mutate(data, size);
        if (seed[0] == 'p') {
            uint32_t step;
            uint32_t fds = 10;
            struct plan p;
            if (size >= 16 && pick(2)) {
                uint32_t whole = (uint32_t)size;
                memcpy(data + 12, &whole, 4); /* or few get past the header */
            }
            if (check_plan(data, (uint32_t)size, fds, &p, &step) == FAULT_NONE) {
                use_plan(&p, fds);
                accepted++;
            }
        } else {
            struct run_strings r;
            if (check_run(data, (uint32_t)size, &r) == 0) {
                use_run(&r, (const char *)data + size);
                accepted++;
            }
        }
        free(data);
    }
    printf("%u\n", accepted);
    return 0;
}
