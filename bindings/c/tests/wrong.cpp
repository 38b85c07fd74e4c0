// Wrong uses in C++: each throws its own exception. The argument is a folder with farm files.
#include <sheaf.hpp>

#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>

namespace {

std::string folder;

// Calls `work`, which has to throw `Wanted` with a message that has `message` in it.
template <class Wanted, class Work>
void expect(int line, const std::string& message, Work work) {
    try {
        work();
    } catch (const Wanted& error) {
        if (std::string(error.what()).find(message) != std::string::npos) {
            return;
        }
        std::cout << "line " << line << ": " << error.what() << '\n';
        std::exit(1);
    } catch (const std::exception& error) {
        std::cout << "line " << line << ": another exception: " << error.what() << '\n';
        std::exit(1);
    }
    std::cout << "line " << line << ": no exception\n";
    std::exit(1);
}

void sources() {
    using std::chrono::milliseconds;
    expect<sheaf::ConfigError>(__LINE__, "none.toml", [] { sheaf::Source(folder + "/none.toml"); });
    expect<sheaf::ConfigError>(__LINE__, "expected \"program\"", [] { sheaf::Source(folder + "/generator.toml"); });
    expect<sheaf::SourceError>(__LINE__, "/none/events", [] {
        sheaf::Source(folder + "/program.toml", 0, {"", "/none/events"});
    });
    sheaf::Source source(folder + "/program.toml");
    const char data[] = "abc";
    if (!source.send(1, data, 3) || !source.send(2, {{data, 1}, {data, 2}})) {
        std::cout << "an STF was not taken\n";
        std::exit(1);
    }
    expect<sheaf::ArgumentError>(__LINE__, "expected ids that go up", [&] { source.send(2, data, 3); });
    expect<sheaf::ConfigError>(__LINE__, "no heartbeats", [&] { source.next_heartbeat(milliseconds(0)); });
    source.interrupt();
    expect<sheaf::Interrupted>(__LINE__, "", [&] { source.send(3, data, 3); });
    // Under an exception the destructor does not wait, though nothing can be decided.
    expect<std::logic_error>(__LINE__, "of the program", [] {
        sheaf::Source other(folder + "/program.toml");
        other.send(1, "abc", 3);
        throw std::logic_error("of the program");
    });
    if (source.close(milliseconds(50)) || !source.close()) {
        std::cout << "the end was not as expected\n";
        std::exit(1);
    }
    expect<sheaf::ArgumentError>(__LINE__, "null as source", [&] { source.send(4, data, 3); });
}

void consumers() {
    expect<sheaf::ConsumerError>(__LINE__, "none", [] { sheaf::Consumer(folder + "/none"); });
    expect<sheaf::FileError>(__LINE__, "none.tfs", [] { sheaf::File(folder + "/none.tfs"); });
    expect<sheaf::FileError>(__LINE__, "byte 0", [] {
        sheaf::File file(folder + "/no.tfs");
        for (sheaf::Tf& tf : file) {
            tf.check();
        }
    });
    alignas(4) const unsigned char bytes[8] = {};
    const sheaf_part part = {bytes + 1, 6, 0, SHEAF_FORMAT_OPAQUE, 0, 0};
    expect<sheaf::ArgumentError>(__LINE__, "found a payload of 6 bytes", [&] { sheaf::as<std::uint16_t>(part); });
    static_assert(std::is_nothrow_move_constructible<sheaf::Tf>::value, "a TF moves");
    static_assert(!std::is_copy_constructible<sheaf::Tf>::value, "a TF has one owner");
}

} // namespace

int main(int count, char** words) {
    folder = count == 2 ? words[1] : ".";
    sources();
    consumers();
    std::cout << "all as expected\n";
}
