/* An analysis in C: takes the TFs of an EPN whose farm file has epn.sink.kind = "shm", and computes their checksums again.

       cc consumer.c -o consumer $(pkg-config --cflags --libs sheaf)
       ./consumer shm:/run/sheaf/epn-0

   Several of them share an EPN. */
#include <sheaf.h>
#include <signal.h>
#include <stdio.h>

static sheaf_consumer *consumer;

static void on_signal(int number) {
    (void)number;
    sheaf_consumer_interrupt(consumer);
}

int main(int count, char **words) {
    if (count != 2) {
        fprintf(stderr, "usage: %s ADDRESS\n", words[0]);
        return 2;
    }
    /* The EPN may start within the next ten seconds. */
    if (sheaf_consumer_open(SHEAF_ABI, words[1], 10000, &consumer) != SHEAF_STATUS_OK) {
        fprintf(stderr, "%s\n", sheaf_error());
        return 1;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);

    unsigned long long tfs = 0, bytes = 0, incomplete = 0, damaged = 0;
    sheaf_tf *tf;
    sheaf_status status;
    while ((status = sheaf_consumer_next(consumer, SHEAF_FOREVER, &tf)) == SHEAF_STATUS_OK) {
        size_t missing, parts;
        sheaf_tf_missing(tf, &missing);
        const sheaf_part *part = sheaf_tf_parts(tf, &parts);
        for (size_t at = 0; at < parts; at++) {
            bytes += part[at].size;
        }
        if (sheaf_tf_check(tf) != SHEAF_STATUS_OK) {
            fprintf(stderr, "TF %llu: %s\n", (unsigned long long)sheaf_tf_id(tf), sheaf_error());
            damaged++;
        }
        tfs++;
        incomplete += missing > 0;
        /* Its memory goes back to the EPN. */
        sheaf_tf_release(tf);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", sheaf_error());
    }
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sheaf_consumer_close(consumer);
    printf("%llu TFs, %llu bytes, %llu incomplete, %llu damaged\n", tfs, bytes, incomplete, damaged);
    return status < 0 || damaged > 0;
}
