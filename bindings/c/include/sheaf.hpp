// Sheaf: sources and consumers of timeframes for C++17, as classes over sheaf.h.
//
// Everything here is inline: only the functions of sheaf.h are in the library. A call that fails throws an Error with
// the message of the library; what is waited for and has not come in time is a result. See docs/how-to/c.md.

#ifndef SHEAF_HPP
#define SHEAF_HPP

#include "sheaf.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sheaf {

// A wait without a bound.
inline constexpr std::chrono::milliseconds forever{SHEAF_FOREVER};

// Base of all exceptions of the library.
class Error : public std::runtime_error {
public:
    Error(sheaf_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    // Which of the errors of sheaf.h it is.
    sheaf_status status() const noexcept { return status_; }

private:
    sheaf_status status_;
};

// The run is over: no more STFs are taken.
class RunOver : public Error {
    using Error::Error;
};

// A wait was ended by interrupt().
class Interrupted : public Error {
    using Error::Error;
};

// An argument that no call takes.
class ArgumentError : public Error {
    using Error::Error;
};

// The farm file cannot be used.
class ConfigError : public Error {
    using Error::Error;
};

// A source cannot begin or go on.
class SourceError : public Error {
    using Error::Error;
};

// No TF can be taken from the EPN, or given back to it.
class ConsumerError : public Error {
    using Error::Error;
};

// A file cannot be read, or is no TF file.
class FileError : public Error {
    using Error::Error;
};

// A payload has another checksum than the one that its FLP took.
class DamagedError : public Error {
    using Error::Error;
};

namespace detail {

// Throws what `status` says, unless it is `SHEAF_STATUS_OK` or `SHEAF_STATUS_TIMEOUT`.
inline void check(sheaf_status status) {
    switch (status) {
    case SHEAF_STATUS_OK:
    case SHEAF_STATUS_TIMEOUT: return;
    case SHEAF_STATUS_END: throw RunOver(status, sheaf_error());
    case SHEAF_STATUS_INTERRUPTED: throw Interrupted(status, "interrupted");
    case SHEAF_STATUS_ERROR_ARGUMENT: throw ArgumentError(status, sheaf_error());
    case SHEAF_STATUS_ERROR_CONFIG: throw ConfigError(status, sheaf_error());
    case SHEAF_STATUS_ERROR_SOURCE: throw SourceError(status, sheaf_error());
    case SHEAF_STATUS_ERROR_CONSUMER: throw ConsumerError(status, sheaf_error());
    case SHEAF_STATUS_ERROR_FILE: throw FileError(status, sheaf_error());
    case SHEAF_STATUS_ERROR_DAMAGED: throw DamagedError(status, sheaf_error());
    default: throw Error(status, sheaf_error());
    }
}

} // namespace detail

// Values of a payload, where they lie.
template <class T>
class View {
public:
    View(const T* data, std::size_t size) noexcept : data_(data), size_(size) {}
    const T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    const T* begin() const noexcept { return data_; }
    const T* end() const noexcept { return data_ + size_; }
    const T& operator[](std::size_t index) const noexcept { return data_[index]; }

private:
    const T* data_;
    std::size_t size_;
};

// Returns the payload of `part` as values of type `T`, without a copy. Throws ArgumentError if it is no whole number of
// them, or does not lie where a `T` may.
template <class T>
View<T> as(const sheaf_part& part) {
    const auto at = reinterpret_cast<std::uintptr_t>(part.data);
    if (part.size % sizeof(T) != 0 || at % alignof(T) != 0) {
        throw ArgumentError(SHEAF_STATUS_ERROR_ARGUMENT,
                            "found a payload of " + std::to_string(part.size) + " bytes at an offset of " +
                                std::to_string(at % alignof(T)) + ", expected a whole number of values of " +
                                std::to_string(sizeof(T)) + " bytes in their place");
    }
    return View<T>(static_cast<const T*>(part.data), part.size / sizeof(T));
}

// A timeframe: one part for each FLP that gave an STF, and the FLPs that did not. A TF of a consumer goes back to its
// EPN with `give_back`, or when it is destroyed; pointers to its bytes are valid until then.
class Tf {
public:
    explicit Tf(sheaf_tf* handle) noexcept : handle_(handle) {}

    std::uint64_t id() const noexcept { return sheaf_tf_id(handle_.get()); }
    std::string run() const { return sheaf_tf_run(handle_.get()); }
    std::uint32_t attempt() const noexcept { return sheaf_tf_attempt(handle_.get()); }
    bool is_redelivered() const noexcept { return sheaf_tf_is_redelivered(handle_.get()); }
    std::uint64_t bytes() const noexcept { return sheaf_tf_bytes(handle_.get()); }

    // Parts in the order of their FLPs.
    View<sheaf_part> parts() const noexcept {
        std::size_t count = 0;
        const sheaf_part* first = sheaf_tf_parts(handle_.get(), &count);
        return View<sheaf_part>(first, count);
    }

    // The part of one FLP; null if it is missing.
    const sheaf_part* part(std::uint16_t flp) const noexcept { return sheaf_tf_part(handle_.get(), flp); }

    // FLPs of which there is no part.
    View<std::uint16_t> missing() const noexcept {
        std::size_t count = 0;
        const std::uint16_t* first = sheaf_tf_missing(handle_.get(), &count);
        return View<std::uint16_t>(first, count);
    }

    // Computes every checksum again. Throws DamagedError, which names all payloads that differ.
    void check() const { detail::check(sheaf_tf_check(handle_.get())); }

    // Gives the TF back with tags, by which streams of the EPN's farm file take it. Throws ConsumerError if the EPN
    // does not take them: the TF went back without them then.
    void give_back(const std::string& tags) {
        detail::check(sheaf_tf_give_back(handle_.release(), tags.c_str(), nullptr, 0));
    }

    // As above, with a product: bytes that were made of the TF.
    void give_back(const std::string& tags, const void* product, std::size_t size) {
        detail::check(sheaf_tf_give_back(handle_.release(), tags.c_str(), product, size));
    }

private:
    struct Release {
        void operator()(sheaf_tf* tf) const noexcept { sheaf_tf_release(tf); }
    };
    std::unique_ptr<sheaf_tf, Release> handle_;
};

// Loop over the TFs of a `Consumer` or `File`: each is released when the loop goes on, unless it was moved away.
template <class Source>
class Iterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Tf;
    using difference_type = std::ptrdiff_t;
    using pointer = Tf*;
    using reference = Tf&;

    Iterator() = default;
    explicit Iterator(Source& source) : source_(&source) { ++*this; }

    Tf& operator*() noexcept { return *tf_; }
    Tf* operator->() noexcept { return &*tf_; }
    Iterator& operator++() {
        tf_.reset();
        tf_ = source_->next();
        if (!tf_) {
            source_ = nullptr;
        }
        return *this;
    }
    friend bool operator==(const Iterator& one, const Iterator& other) noexcept { return one.source_ == other.source_; }
    friend bool operator!=(const Iterator& one, const Iterator& other) noexcept { return !(one == other); }

private:
    Source* source_ = nullptr;
    std::optional<Tf> tf_;
};

// A consumer of one EPN of this machine: `for (sheaf::Tf& tf : consumer)`.
class Consumer {
public:
    // Connects to `address`, such as shm:/run/sheaf/epn-0, and waits for at most `wait` for an EPN to be there.
    explicit Consumer(const std::string& address, std::chrono::milliseconds wait = std::chrono::milliseconds(0)) {
        sheaf_consumer* handle = nullptr;
        detail::check(sheaf_consumer_open(SHEAF_ABI, address.c_str(), wait.count(), &handle));
        handle_.reset(handle);
    }

    // Waits for the next TF. Returns none if there was none in time, or the EPN has ended: `ended()` says which. Throws
    // Interrupted.
    std::optional<Tf> next(std::chrono::milliseconds timeout = forever) {
        sheaf_tf* tf = nullptr;
        const sheaf_status status = sheaf_consumer_next(handle_.get(), timeout.count(), &tf);
        has_ended_ = status == SHEAF_STATUS_END;
        if (!has_ended_) {
            detail::check(status);
        }
        return tf == nullptr ? std::nullopt : std::optional<Tf>(Tf(tf));
    }

    // Whether the EPN has ended, and all that it had offered is taken.
    bool ended() const noexcept { return has_ended_; }

    // Descriptor that becomes readable when there is a TF after `next` has returned none.
    int fd() const noexcept { return sheaf_consumer_fd(handle_.get()); }

    // Ends the wait of another thread, or the next one. May be called in a handler of signals.
    void interrupt() noexcept { sheaf_consumer_interrupt(handle_.get()); }

    Iterator<Consumer> begin() { return Iterator<Consumer>(*this); }
    Iterator<Consumer> end() { return Iterator<Consumer>(); }

private:
    struct Close {
        void operator()(sheaf_consumer* consumer) const noexcept { sheaf_consumer_close(consumer); }
    };
    std::unique_ptr<sheaf_consumer, Close> handle_;
    bool has_ended_ = false;
};

// The TFs of one file: `for (sheaf::Tf& tf : file)`.
class File {
public:
    explicit File(const std::string& path) {
        sheaf_file* handle = nullptr;
        detail::check(sheaf_file_open(SHEAF_ABI, path.c_str(), &handle));
        handle_.reset(handle);
    }

    // Reads the next TF; none behind the last one. Throws FileError where the bytes are no whole TF.
    std::optional<Tf> next() {
        sheaf_tf* tf = nullptr;
        const sheaf_status status = sheaf_file_next(handle_.get(), &tf);
        if (status == SHEAF_STATUS_END) {
            return std::nullopt;
        }
        detail::check(status);
        return Tf(tf);
    }

    Iterator<File> begin() { return Iterator<File>(*this); }
    Iterator<File> end() { return Iterator<File>(); }

private:
    struct Close {
        void operator()(sheaf_file* file) const noexcept { sheaf_file_close(file); }
    };
    std::unique_ptr<sheaf_file, Close> handle_;
};

// The readout of one FLP, in this process. The destructor waits until each STF is decided, as `close` does, unless an
// exception is under way; what goes wrong there is lost, so call `close`.
class Source {
public:
    struct Options {
        // Address at which the metrics of the FLP are served; empty: as the farm file says.
        std::string metrics = {};
        // File to which the event log of the FLP is appended; empty: none.
        std::string events = {};
    };

    // Starts FLP `flp` of the farm file `farm`.
    explicit Source(const std::string& farm, std::uint16_t flp = 0) : Source(farm, flp, Options()) {}

    Source(const std::string& farm, std::uint16_t flp, const Options& options)
        : exceptions_(std::uncaught_exceptions()) {
        const auto text = [](const std::string& word) { return word.empty() ? nullptr : word.c_str(); };
        const sheaf_source_options given = {text(options.metrics), text(options.events)};
        detail::check(sheaf_source_open(SHEAF_ABI, farm.c_str(), flp, &given, &handle_));
    }

    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;

    ~Source() {
        const bool is_failing = std::uncaught_exceptions() > exceptions_;
        sheaf_source_close(handle_, is_failing ? 0 : SHEAF_FOREVER);
    }

    // Sends the STF of TF `tf`: `size` bytes, which are copied before the call returns. Waits for at most `timeout`
    // while the farm takes nothing. Returns whether the farm has it; if not, nothing was taken. Throws RunOver,
    // Interrupted.
    bool send(std::uint64_t tf, const void* data, std::size_t size, std::chrono::milliseconds timeout = forever,
              sheaf_format format = SHEAF_FORMAT_OPAQUE) {
        return send(tf, {{data, size}}, timeout, format);
    }

    // As above, with a payload of several parts, one behind the other.
    bool send(std::uint64_t tf, std::initializer_list<sheaf_bytes> parts, std::chrono::milliseconds timeout = forever,
              sheaf_format format = SHEAF_FORMAT_OPAQUE) {
        return send_all(tf, parts.begin(), parts.size(), timeout, format);
    }

    bool send(std::uint64_t tf, const std::vector<sheaf_bytes>& parts, std::chrono::milliseconds timeout = forever,
              sheaf_format format = SHEAF_FORMAT_OPAQUE) {
        return send_all(tf, parts.data(), parts.size(), timeout, format);
    }

    // Waits for the next TF that the ICN calls for, in a farm with icn.scheduler.mode = "paced". Returns none if there
    // was none in time. Throws RunOver, Interrupted.
    std::optional<std::uint64_t> next_heartbeat(std::chrono::milliseconds timeout = forever) {
        std::uint64_t tf = 0;
        const sheaf_status status = sheaf_source_next_heartbeat(handle_, timeout.count(), &tf);
        detail::check(status);
        return status == SHEAF_STATUS_OK ? std::optional<std::uint64_t>(tf) : std::nullopt;
    }

    // Ends the wait of another thread, or the next one. May be called in a handler of signals.
    void interrupt() noexcept { sheaf_source_interrupt(handle_); }

    // Ends the source, and waits for at most `timeout` until each of its STFs is decided. Returns whether that has
    // come; if not, the FLP goes on for as long as the process lives. A second call does nothing.
    bool close(std::chrono::milliseconds timeout = forever) {
        const sheaf_status status = sheaf_source_close(std::exchange(handle_, nullptr), timeout.count());
        detail::check(status);
        return status == SHEAF_STATUS_OK;
    }

private:
    bool send_all(std::uint64_t tf, const sheaf_bytes* parts, std::size_t count, std::chrono::milliseconds timeout,
                  sheaf_format format) {
        const sheaf_status status = sheaf_source_send(handle_, tf, parts, count, format, timeout.count());
        detail::check(status);
        return status == SHEAF_STATUS_OK;
    }

    sheaf_source* handle_ = nullptr;
    int exceptions_;
};

} // namespace sheaf

#endif // SHEAF_HPP
