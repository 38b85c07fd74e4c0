/* Wrong uses in C: each has its status, and a message that names what was found and expected. The argument is a folder
   with farm files. */
#include <sheaf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char place[4096];

static const char *at(const char *folder, const char *name) {
    snprintf(place, sizeof place, "%s/%s", folder, name);
    return place;
}

static void expect(int line, sheaf_status found, sheaf_status expected, const char *message) {
    if (found != expected || (message != NULL && strstr(sheaf_error(), message) == NULL)) {
        printf("line %d: found %s: %s\nexpected %s: %s\n", line, sheaf_status_word(found), sheaf_error(),
               sheaf_status_word(expected), message == NULL ? "" : message);
        exit(1);
    }
}

#define EXPECT(call, status, message) expect(__LINE__, (call), SHEAF_STATUS_##status, (message))

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void opening(const char *folder) {
    sheaf_source *source = (sheaf_source *)place;
    EXPECT(sheaf_source_open(SHEAF_ABI + 0x10000, at(folder, "program.toml"), 0, NULL, &source), ERROR_ABI,
           "compiled with sheaf.h of ABI 2.0, and the library has ABI 1.0");
    EXPECT(source == NULL ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    EXPECT(sheaf_source_open(SHEAF_ABI + 1, at(folder, "program.toml"), 0, NULL, &source), ERROR_ABI, "ABI 1.1");
    EXPECT(sheaf_source_open(SHEAF_ABI, NULL, 0, NULL, &source), ERROR_ARGUMENT, "found null as farm");
    EXPECT(sheaf_source_open(SHEAF_ABI, "\xff", 0, NULL, &source), ERROR_ARGUMENT, "farm is not UTF-8");
    EXPECT(sheaf_source_open(SHEAF_ABI, at(folder, "program.toml"), 0, NULL, NULL), ERROR_ARGUMENT, "null as source");
    EXPECT(sheaf_source_open(SHEAF_ABI, at(folder, "none.toml"), 0, NULL, &source), ERROR_CONFIG, "none.toml");
    EXPECT(sheaf_source_open(SHEAF_ABI, at(folder, "broken.toml"), 0, NULL, &source), ERROR_CONFIG, "flps");
    EXPECT(sheaf_source_open(SHEAF_ABI, at(folder, "generator.toml"), 0, NULL, &source), ERROR_CONFIG,
           "found flp.source.kind = \"generator\", expected \"program\"");
    EXPECT(sheaf_source_open(SHEAF_ABI, at(folder, "program.toml"), 1, NULL, &source), ERROR_CONFIG,
           "found index 1, expected one below 1");
    const sheaf_source_options nowhere = {NULL, "/none/flp.events"};
    EXPECT(sheaf_source_open(SHEAF_ABI, at(folder, "program.toml"), 0, &nowhere, &source), ERROR_SOURCE, "/none/flp");

    sheaf_consumer *consumer;
    EXPECT(sheaf_consumer_open(SHEAF_ABI, at(folder, "none"), 0, &consumer), ERROR_CONSUMER, "none");
    EXPECT(sheaf_consumer_open(0, at(folder, "none"), 0, &consumer), ERROR_ABI, "ABI 0.0");
    const double before = now();
    EXPECT(sheaf_consumer_open(SHEAF_ABI, at(folder, "none"), 200, &consumer), ERROR_CONSUMER, NULL);
    EXPECT(now() - before >= 0.2 ? SHEAF_STATUS_OK : SHEAF_STATUS_TIMEOUT, OK, NULL);

    sheaf_file *file;
    sheaf_tf *tf;
    EXPECT(sheaf_file_open(SHEAF_ABI, at(folder, "none.tfs"), &file), ERROR_FILE, "none.tfs");
    EXPECT(sheaf_file_open(SHEAF_ABI, at(folder, "no.tfs"), &file), OK, NULL);
    EXPECT(sheaf_file_next(file, &tf), ERROR_FILE, "byte 0");
    EXPECT(tf == NULL ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    sheaf_file_close(file);
}

/* Null is taken everywhere: with an error, or with nothing. */
static void nulls(void) {
    size_t count = 7;
    uint64_t tf_id;
    sheaf_tf *tf;
    EXPECT(sheaf_log_to_stderr(NULL), ERROR_ARGUMENT, "level");
    EXPECT(sheaf_log_to_stderr("loud"), ERROR_ARGUMENT, "found level \"loud\", expected one of");
    EXPECT(sheaf_source_send(NULL, 0, NULL, 0, SHEAF_FORMAT_OPAQUE, 0), ERROR_ARGUMENT, "source");
    EXPECT(sheaf_source_next_heartbeat(NULL, 0, &tf_id), ERROR_ARGUMENT, "source");
    EXPECT(sheaf_source_close(NULL, 0), OK, NULL);
    sheaf_source_interrupt(NULL);
    EXPECT(sheaf_consumer_next(NULL, 0, &tf), ERROR_ARGUMENT, "consumer");
    EXPECT(sheaf_consumer_next(NULL, 0, NULL), ERROR_ARGUMENT, "tf");
    EXPECT(sheaf_consumer_fd(NULL) == -1 ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    sheaf_consumer_interrupt(NULL);
    sheaf_consumer_close(NULL);
    EXPECT(sheaf_file_next(NULL, &tf), ERROR_ARGUMENT, "file");
    sheaf_file_close(NULL);
    EXPECT(sheaf_tf_check(NULL), ERROR_ARGUMENT, "tf");
    EXPECT(sheaf_tf_give_back(NULL, "tag", NULL, 0), ERROR_ARGUMENT, "tf");
    EXPECT(sheaf_tf_parts(NULL, &count) == NULL && count == 0 ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    EXPECT(sheaf_tf_part(NULL, 0) == NULL && sheaf_tf_id(NULL) == 0 ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    EXPECT(sheaf_tf_missing(NULL, NULL) == NULL ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    sheaf_tf_release(NULL);
    EXPECT(strcmp(sheaf_status_word(99), "unknown") == 0 ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
}

static void sending(const char *folder) {
    sheaf_source *source;
    uint64_t heartbeat;
    EXPECT(sheaf_source_open(SHEAF_ABI, at(folder, "program.toml"), 0, NULL, &source), OK, NULL);
    const sheaf_bytes bytes = {"abc", 3}, none = {NULL, 3}, empty = {NULL, 0};
    EXPECT(sheaf_source_send(source, 5, &bytes, 1, 9, 0), ERROR_ARGUMENT, "found format 9, expected one of");
    EXPECT(sheaf_source_send(source, 5, NULL, 1, SHEAF_FORMAT_OPAQUE, 0), ERROR_ARGUMENT, "found null as parts");
    EXPECT(sheaf_source_send(source, 5, &none, 1, SHEAF_FORMAT_OPAQUE, 0), ERROR_ARGUMENT, "null as data of a part");
    EXPECT(sheaf_source_send(source, 5, &bytes, SIZE_MAX, SHEAF_FORMAT_OPAQUE, 0), ERROR_ARGUMENT, "more than there");
    EXPECT(sheaf_source_send(source, 5, &empty, 1, SHEAF_FORMAT_OPAQUE, SHEAF_FOREVER), OK, NULL);
    EXPECT(sheaf_source_send(source, 5, &bytes, 1, SHEAF_FORMAT_OPAQUE, 0), ERROR_ARGUMENT,
           "TF 5 comes after TF 5, expected ids that go up");
    EXPECT(sheaf_source_next_heartbeat(source, 0, &heartbeat), ERROR_CONFIG, "the farm has no heartbeats");
    EXPECT(sheaf_source_next_heartbeat(source, 0, NULL), ERROR_ARGUMENT, "found null as tf");

    /* An interrupt ends one call. */
    sheaf_source_interrupt(source);
    EXPECT(sheaf_source_send(source, 6, &bytes, 1, SHEAF_FORMAT_OPAQUE, SHEAF_FOREVER), INTERRUPTED, NULL);
    EXPECT(sheaf_source_send(source, 6, &bytes, 1, SHEAF_FORMAT_OPAQUE, SHEAF_FOREVER), OK, NULL);

    /* Its ICN is not there: the queue fills up, and the call says no in time. */
    uint64_t tf = 7;
    sheaf_status status;
    while ((status = sheaf_source_send(source, tf, &bytes, 1, SHEAF_FORMAT_OPAQUE, 20)) == SHEAF_STATUS_OK) {
        tf++;
    }
    EXPECT(status, TIMEOUT, NULL);

    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        EXPECT(sheaf_source_send(source, tf, &bytes, 1, SHEAF_FORMAT_OPAQUE, 0), ERROR_FORK, "a fork copies neither");
        EXPECT(sheaf_source_close(source, 0), ERROR_FORK, NULL);
        fflush(stdout);
        _exit(0);
    }
    int end;
    waitpid(child, &end, 0);
    EXPECT(WIFEXITED(end) && WEXITSTATUS(end) == 0 ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    EXPECT(sheaf_source_close(source, 50), TIMEOUT, NULL);
}

int main(int count, char **words) {
    const char *folder = count == 2 ? words[1] : ".";
    EXPECT(*sheaf_error() == '\0' ? SHEAF_STATUS_OK : SHEAF_STATUS_END, OK, NULL);
    opening(folder);
    nulls();
    sending(folder);
    printf("all as expected\n");
    return 0;
}
