/* A readout in C: gives the STFs of FLP 0 to a farm whose file has flp.source.kind = "program".

       cc source.c -o source $(pkg-config --cflags --libs sheaf)
       ./source farm.toml 1000 flp-0.events

   An interrupt ends it: what was sent is decided first. A second one ends the process. */
#include <sheaf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sheaf_source *source;

static void on_signal(int number) {
    (void)number;
    sheaf_source_interrupt(source);
}

int main(int count, char **words) {
    if (count != 3 && count != 4) {
        fprintf(stderr, "usage: %s FARM TFS [EVENTS]\n", words[0]);
        return 2;
    }
    const uint64_t tfs = strtoull(words[2], NULL, 10);
    const sheaf_source_options options = {.events = count == 4 ? words[3] : NULL};
    if (sheaf_source_open(SHEAF_ABI, words[1], 0, &options, &source) != SHEAF_STATUS_OK) {
        fprintf(stderr, "%s\n", sheaf_error());
        return 1;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);

    uint64_t header;
    static unsigned short samples[50000];
    sheaf_status status = SHEAF_STATUS_OK;
    uint64_t tf = 0;
    for (; tf < tfs; tf++) {
        /* What the detector has: here a counter and some samples. */
        memcpy(&header, &tf, sizeof header);
        memset(samples, (int)(tf & 0xff), sizeof samples);
        const sheaf_bytes parts[] = {{&header, sizeof header}, {samples, sizeof samples}};
        status = sheaf_source_send(source, tf, parts, 2, SHEAF_FORMAT_OPAQUE, SHEAF_FOREVER);
        if (status != SHEAF_STATUS_OK) {
            break;
        }
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", sheaf_error());
    }
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    /* Waits until each STF is decided: built, or counted as lost with the reason. */
    const sheaf_status closed = sheaf_source_close(source, SHEAF_FOREVER);
    if (closed < 0) {
        fprintf(stderr, "%s\n", sheaf_error());
    }
    printf("sent %llu STFs\n", (unsigned long long)tf);
    return status < 0 || closed != SHEAF_STATUS_OK;
}
