#include "settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SERVERS,
    STRIPE_KIB,
    SERVER_MB_S,
    REQUEST_MS,
    OUT_OF_ORDER_MS,
    CLIENT_MB_S,
    READAHEAD_KIB,
    IN_FLIGHT,
    PIN,
    COUNT
};

static const struct {
    const char *name;
    double min, max;
    bool whole;
} ranges[COUNT] = {[SERVERS] = {"servers", 1, PFS_SERVERS_MAX, true},
                   [STRIPE_KIB] = {"stripe_kib", 4, 1 << 20, true},
                   [SERVER_MB_S] = {"server_mb_s", 0.01, 1e6, false},
                   [REQUEST_MS] = {"request_ms", 0, 1e4, false},
                   [OUT_OF_ORDER_MS] = {"out_of_order_ms", 0, 1e4, false},
                   [CLIENT_MB_S] = {"client_mb_s", 0.01, 1e6, false},
                   [READAHEAD_KIB] = {"readahead_kib", 0, 1 << 20, true},
                   [IN_FLIGHT] = {"in_flight", 1, 256, true},
                   [PIN] = {"pin", 0, 1, true}};

/* The setting that a text NAME=VALUE is about, COUNT if none. */
static int setting_of(const char *text)
{
    int i = 0;
    while (i < COUNT && (strncmp(text, ranges[i].name, strlen(ranges[i].name)) != 0 ||
                         text[strlen(ranges[i].name)] != '='))
        i++;
    return i;
}

static bool read_value(const char *text, int setting, double *value)
{
    const char *digits = text + strlen(ranges[setting].name) + 1;
    char *end;
    *value = strtod(digits, &end);
    if (end == digits || *end != '\0' || !(*value >= ranges[setting].min) ||
        !(*value <= ranges[setting].max) ||
        (ranges[setting].whole && *value != floor(*value))) {
        (void)fprintf(stderr, "%s: %s is a %s from %g to %g\n", text, ranges[setting].name,
                      ranges[setting].whole ? "whole number" : "number", ranges[setting].min,
                      ranges[setting].max);
        return false;
    }
    return true;
}

static uint64_t ms(double value)
{
    return (uint64_t)(value * 1e6 + 0.5);
}

bool pfs_settings_read(char *const *texts, int count, pfs_settings *out)
{
    double values[COUNT];
    bool given[COUNT] = {false};
    for (int i = 0; i < count; i++) {
        int setting = setting_of(texts[i]);
        if (setting == COUNT) {
            (void)fprintf(stderr, "%s: no such constant\n", texts[i]);
            return false;
        }
        if (!read_value(texts[i], setting, &values[setting]))
            return false;
        given[setting] = true;
    }
    for (int i = 0; i < COUNT; i++) {
        if (!given[i]) {
            (void)fprintf(stderr, "%s lacks\n", ranges[i].name);
            return false;
        }
    }
    out->constants.servers = (uint32_t)values[SERVERS];
    out->constants.stripe_bytes = (uint64_t)values[STRIPE_KIB] * 1024;
    out->constants.server_bytes_s = values[SERVER_MB_S] * 1e6;
    out->constants.client_bytes_s = values[CLIENT_MB_S] * 1e6;
    out->constants.request_ns = ms(values[REQUEST_MS]);
    out->constants.out_of_order_ns = ms(values[OUT_OF_ORDER_MS]);
    out->readahead_bytes = (uint32_t)values[READAHEAD_KIB] * 1024;
    out->in_flight = (uint32_t)values[IN_FLIGHT];
    out->pin = values[PIN] != 0;
    return true;
}
