/* Sheaf: sources and consumers of timeframes for C and C++.

   A program gives the STFs of one FLP to a farm (sheaf_source), takes TFs from an EPN of its machine (sheaf_consumer),
   or reads them from files (sheaf_file). See docs/how-to/c.md.

   Every function says which threads may call it. None throws or ends the process; a handle is used in the process that
   has opened it, and not after a fork. Texts are UTF-8.

   This file is written from bindings/c/src: change it there. */

#ifndef SHEAF_H
#define SHEAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Major version of this interface: programs of another one are refused.
#define SHEAF_ABI_MAJOR 1

// Minor version of this interface: programs of an older one go on to work.
#define SHEAF_ABI_MINOR 0

// Version of this interface, for the functions that open something.
#define SHEAF_ABI ((SHEAF_ABI_MAJOR << 16) | SHEAF_ABI_MINOR)

// A wait without a bound, as `timeout_ms`.
#define SHEAF_FOREVER -1

// Result of a call. Errors are below 0; `sheaf_error()` says what was found and what was expected.
enum sheaf_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  SHEAF_STATUS_OK = 0,
  // Not done within the time given. Nothing was taken: the same call can follow.
  SHEAF_STATUS_TIMEOUT = 1,
  // The run is over, the EPN has ended, or the file has no more TFs.
  SHEAF_STATUS_END = 2,
  // `sheaf_source_interrupt` or `sheaf_consumer_interrupt` has ended the wait. Nothing was taken.
  SHEAF_STATUS_INTERRUPTED = 3,
  // An argument that no call takes, such as a null pointer or a TF id that is not behind the last one.
  SHEAF_STATUS_ERROR_ARGUMENT = -1,
  // The farm file cannot be used.
  SHEAF_STATUS_ERROR_CONFIG = -2,
  // A source cannot begin or go on.
  SHEAF_STATUS_ERROR_SOURCE = -3,
  // No TF can be taken from the EPN, or given back to it.
  SHEAF_STATUS_ERROR_CONSUMER = -4,
  // A file cannot be read, or is no TF file.
  SHEAF_STATUS_ERROR_FILE = -5,
  // A payload has another checksum than the one that its FLP took.
  SHEAF_STATUS_ERROR_DAMAGED = -6,
  // The program was compiled with the header of another version.
  SHEAF_STATUS_ERROR_ABI = -7,
  // A handle of another process, after a fork.
  SHEAF_STATUS_ERROR_FORK = -8,
  // A defect of Sheaf; the standard error has its message.
  SHEAF_STATUS_ERROR_DEFECT = -9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum sheaf_status sheaf_status;
#else
typedef int32_t sheaf_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Format of a payload.
enum sheaf_format
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Bytes that Sheaf does not look into.
  SHEAF_FORMAT_OPAQUE = 0,
  // Pages with raw data headers of ALICE.
  SHEAF_FORMAT_RDH = 1,
  // Records of KM3NeT.
  SHEAF_FORMAT_KM3NET = 2,
  // Datagrams of XTC2, of LCLS-II.
  SHEAF_FORMAT_XTC2 = 3,
  // Blocks of O2.
  SHEAF_FORMAT_O2_BLOCKS = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum sheaf_format sheaf_format;
#else
typedef uint32_t sheaf_format;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A consumer of the sink `shm` of one EPN, on the same machine. Several processes can share an EPN: a TF goes to one
// of them.
typedef struct sheaf_consumer sheaf_consumer;

// The readout of one FLP, in this process: the farm file has `flp.source.kind = "program"`, and this handle stands
// where another farm has a process `sheaf run flp`. The FLP has threads of its own, in which all signals are blocked.
typedef struct sheaf_source sheaf_source;

// A timeframe: one part for each FLP that gave an STF, and the FLPs that did not.
//
// A TF of a consumer lies in the memory of its EPN, or of the FLPs, which waits for it until `sheaf_tf_release` or
// `sheaf_tf_give_back`; pointers to its bytes are valid until then.
typedef struct sheaf_tf sheaf_tf;

// The TFs of one file of the sinks `file` and `streams`, in order.
typedef struct sheaf_file sheaf_file;

// Options of `sheaf_source_open`. Members that are zero have their defaults.
typedef struct sheaf_source_options {
  // Address at which the metrics of the FLP are served, such as `127.0.0.1:9100`; null: as the farm file says.
  const char *metrics;
  // File to which the event log of the FLP is appended; null: none.
  const char *events;
} sheaf_source_options;

// Some bytes of the program.
typedef struct sheaf_bytes {
  // The first one; may be null if there are none.
  const void *data;
  // Number of bytes.
  size_t size;
} sheaf_bytes;

// The STF of one FLP within a TF.
typedef struct sheaf_part {
  // Payload: `size` bytes, which are not to be written.
  const void *data;
  // Bytes of the payload.
  size_t size;
  // Incarnation of the FLP: its start in ns since 1970.
  uint64_t incarnation;
  // Payload format, one of `sheaf_format`.
  uint32_t format;
  // CRC-32C that the FLP took when the data arrived.
  uint32_t digest;
  // Index of the FLP.
  uint16_t flp;
} sheaf_part;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns what went wrong in the last call of this thread that failed: what was found and what was expected, in one
// line of UTF-8. Never null; valid until the next call of this thread fails.
//
// Threads: any.
const char *sheaf_error(void);

// Returns a word for `status`, such as `timeout`. Never null; valid for ever.
//
// Threads: any.
const char *sheaf_status_word(int32_t status);

// Returns the `SHEAF_ABI` of the library that was loaded.
//
// Threads: any.
uint32_t sheaf_abi(void);

// Returns the version of the product, such as `0.1.0`. Never null; valid for ever.
//
// Threads: any.
const char *sheaf_version(void);

// Writes the log of nodes in this process to the standard error, from `level` on: `error`, `warn`, `info`, `debug`,
// `trace` or `off`. Without it nothing is written. One call for each process.
//
// Threads: any.
sheaf_status sheaf_log_to_stderr(const char *level);

// Starts FLP `flp` of the farm file `farm`. It takes STFs from now on; the run begins when all nodes that it needs are
// there. `abi` is `SHEAF_ABI`, `options` may be null. With `SHEAF_STATUS_OK` `*source` is the handle, which
// `sheaf_source_close` frees; else it is null.
//
// Threads: any.
sheaf_status sheaf_source_open(uint32_t abi,
                               const char *farm,
                               uint16_t flp,
                               const struct sheaf_source_options *options,
                               struct sheaf_source **source);

// Sends the STF of TF `tf`, whose payload is the `count` `parts` one behind the other, in the format `format`, one of
// `sheaf_format`. The payload is copied once, before the call returns. Waits for at most `timeout_ms` milliseconds
// while the farm takes nothing, `SHEAF_FOREVER` without a bound. Ids go up; those that are left out count as
// source-overrun.
//
// Returns `SHEAF_STATUS_OK` if the farm has the STF. With any other status nothing was taken, and the same STF can be
// sent again: `SHEAF_STATUS_TIMEOUT`, `SHEAF_STATUS_INTERRUPTED`, `SHEAF_STATUS_END` when the run is over, or an
// error.
//
// Threads: any; calls on one source follow one another, so one that waits holds up the next.
sheaf_status sheaf_source_send(struct sheaf_source *source,
                               uint64_t tf,
                               const struct sheaf_bytes *parts,
                               size_t count,
                               uint32_t format,
                               int64_t timeout_ms);

// Waits for the next TF that the ICN calls for, in a farm with `icn.scheduler.mode = "paced"`, for at most
// `timeout_ms` milliseconds. Each is returned once.
//
// Returns `SHEAF_STATUS_OK` with the TF in `*tf`, `SHEAF_STATUS_TIMEOUT`, `SHEAF_STATUS_INTERRUPTED`,
// `SHEAF_STATUS_END` when the run is over, or an error; in a farm without heartbeats `SHEAF_STATUS_ERROR_CONFIG`.
//
// Threads: any; calls on one source follow one another.
sheaf_status sheaf_source_next_heartbeat(struct sheaf_source *source,
                                         int64_t timeout_ms,
                                         uint64_t *tf);

// Ends the wait that another thread has in `source` within 50 ms, or the next one: it returns
// `SHEAF_STATUS_INTERRUPTED`.
//
// Threads: any, and handlers of signals, until `sheaf_source_close` has returned.
void sheaf_source_interrupt(struct sheaf_source *source);

// Ends the source, and waits for at most `timeout_ms` milliseconds until each of its STFs is decided and the FLP has
// left the farm. The handle is freed in any case; null is taken and does nothing.
//
// Returns `SHEAF_STATUS_OK` if that has come, `SHEAF_STATUS_TIMEOUT` or `SHEAF_STATUS_INTERRUPTED` if not: the FLP
// goes on without the handle then, for as long as the process lives. In a process that was forked nothing happens.
//
// Threads: any, when no other call on the source but `sheaf_source_interrupt` is under way or comes.
sheaf_status sheaf_source_close(struct sheaf_source *source,
                                int64_t timeout_ms);

// Connects to the EPN at `address`: `shm:` and the `epn.sink.path` of its farm file, or the path alone. Waits for at
// most `timeout_ms` milliseconds for an EPN to be there; one that is there has 5 s to answer. `abi` is `SHEAF_ABI`.
// With `SHEAF_STATUS_OK` `*consumer` is the handle, which `sheaf_consumer_close` frees; else it is null.
//
// Returns `SHEAF_STATUS_ERROR_CONSUMER` if no EPN is there by then, or it runs as another user, or has as many
// consumers as it takes.
//
// Threads: any.
sheaf_status sheaf_consumer_open(uint32_t abi,
                                 const char *address,
                                 int64_t timeout_ms,
                                 struct sheaf_consumer **consumer);

// Waits for the next TF for at most `timeout_ms` milliseconds, `SHEAF_FOREVER` without a bound. The EPN waits for its
// memory until `sheaf_tf_release` or `sheaf_tf_give_back`, which come in any order and in any thread; an EPN lends few
// TFs at a time.
//
// Returns `SHEAF_STATUS_OK` with the TF in `*tf`, else null there and `SHEAF_STATUS_TIMEOUT`,
// `SHEAF_STATUS_INTERRUPTED`, `SHEAF_STATUS_END` when the EPN has ended and all that it had offered is taken, or an
// error.
//
// Threads: any; calls on one consumer follow one another, so one that waits holds up the next.
sheaf_status sheaf_consumer_next(struct sheaf_consumer *consumer,
                                 int64_t timeout_ms,
                                 struct sheaf_tf **tf);

// Returns a descriptor that becomes readable when there is a TF after `sheaf_consumer_next` has returned
// `SHEAF_STATUS_TIMEOUT`, for `poll` and event loops; -1 if `consumer` is null. It belongs to the consumer.
//
// Threads: any; calls on one consumer follow one another.
int sheaf_consumer_fd(struct sheaf_consumer *consumer);

// Ends the wait that another thread has in `consumer` within 50 ms, or the next one: it returns
// `SHEAF_STATUS_INTERRUPTED`.
//
// Threads: any, and handlers of signals, until `sheaf_consumer_close` is called.
void sheaf_consumer_interrupt(struct sheaf_consumer *consumer);

// Leaves the EPN and frees the handle; null is taken and does nothing. What was offered to this consumer goes to
// another one; TFs that it has given stay valid. In a process that was forked nothing happens.
//
// Threads: any, when no other call on the consumer is under way or comes.
void sheaf_consumer_close(struct sheaf_consumer *consumer);

// Returns the id of the TF within its run; 0 if `tf` is null.
//
// Threads: any, several at once.
uint64_t sheaf_tf_id(const struct sheaf_tf *tf);

// Returns the run, as in logs and names of folders. Never null; valid as long as the TF.
//
// Threads: any, several at once.
const char *sheaf_tf_run(const struct sheaf_tf *tf);

// Returns the number of the attempt to build the TF, from 1; 0 in a file that does not say.
//
// Threads: any, several at once.
uint32_t sheaf_tf_attempt(const struct sheaf_tf *tf);

// Returns whether another consumer may have had the TF before.
//
// Threads: any, several at once.
bool sheaf_tf_is_redelivered(const struct sheaf_tf *tf);

// Returns the bytes of all payloads.
//
// Threads: any, several at once.
uint64_t sheaf_tf_bytes(const struct sheaf_tf *tf);

// Returns the parts in the order of their FLPs, and their number in `*count`, which may not be null. They are valid as
// long as the TF.
//
// Threads: any, several at once.
const struct sheaf_part *sheaf_tf_parts(const struct sheaf_tf *tf,
                                        size_t *count);

// Returns the part of one FLP; null if it is missing. It is valid as long as the TF.
//
// Threads: any, several at once.
const struct sheaf_part *sheaf_tf_part(const struct sheaf_tf *tf, uint16_t flp);

// Returns the FLPs of which there is no part, and their number in `*count`, which may not be null. They are valid as
// long as the TF.
//
// Threads: any, several at once.
const uint16_t *sheaf_tf_missing(const struct sheaf_tf *tf,
                                 size_t *count);

// Computes the CRC-32C of every payload again. Returns `SHEAF_STATUS_OK`, or `SHEAF_STATUS_ERROR_DAMAGED` if one
// differs from what its FLP took: `sheaf_error()` names all of them.
//
// Threads: any, several at once.
sheaf_status sheaf_tf_check(const struct sheaf_tf *tf);

// Gives the TF back without a tag and frees the handle; null is taken and does nothing. In a process that was forked
// nothing happens.
//
// Threads: any, when no other call on the TF is under way or comes.
void sheaf_tf_release(struct sheaf_tf *tf);

// Gives a TF of a consumer back with `tags` (words of a-z, 0-9, - and _ with a comma between two, null for none), by
// which streams of the EPN's farm file take it, and with a product: `size` bytes that were made of it, none with null.
// The handle is freed in any case.
//
// Returns `SHEAF_STATUS_ERROR_CONSUMER` if the EPN writes nothing, or tags or product are not what it takes: the TF
// went back without them then. `SHEAF_STATUS_ERROR_ARGUMENT` for a TF of a file.
//
// Threads: any, when no other call on the TF is under way or comes.
sheaf_status sheaf_tf_give_back(struct sheaf_tf *tf,
                                const char *tags,
                                const void *product,
                                size_t size);

// Opens the file at `path`. `abi` is `SHEAF_ABI`. With `SHEAF_STATUS_OK` `*file` is the handle, which
// `sheaf_file_close` frees; else it is null.
//
// Threads: any.
sheaf_status sheaf_file_open(uint32_t abi,
                             const char *path,
                             struct sheaf_file **file);

// Reads the next TF and compares all its checksums. `sheaf_tf_release` frees it.
//
// Returns `SHEAF_STATUS_OK` with the TF in `*tf`, else null there and `SHEAF_STATUS_END` behind the last one, or
// `SHEAF_STATUS_ERROR_FILE` where the bytes are no whole TF: `sheaf_error()` says at which offset.
//
// Threads: any; calls on one file follow one another.
sheaf_status sheaf_file_next(struct sheaf_file *file,
                             struct sheaf_tf **tf);

// Frees the handle; null is taken and does nothing. TFs that were read stay valid.
//
// Threads: any, when no other call on the file is under way or comes.
void sheaf_file_close(struct sheaf_file *file);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SHEAF_H */
