// A trigger in C++: takes the TFs of an EPN and gives those with a loud part back with a tag and a product.
//
//     c++ -std=c++17 consumer.cpp -o consumer $(pkg-config --cflags --libs sheaf)
//     ./consumer shm:/run/sheaf/epn-0 200
//
// The farm file has epn.sink.kind = "shm", and a stream of epn.sink.write that takes the tag. An interrupt ends it.
#include <sheaf.hpp>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <string>

namespace {

sheaf::Consumer* running = nullptr;

void on_signal(int) { running->interrupt(); }

// Returns the largest sample of all parts.
std::uint16_t loudest(const sheaf::Tf& tf) {
    std::uint16_t most = 0;
    for (const sheaf_part& part : tf.parts()) {
        for (const std::uint16_t sample : sheaf::as<std::uint16_t>(part)) {
            most = std::max(most, sample);
        }
    }
    return most;
}

} // namespace

int main(int count, char** words) {
    if (count != 3) {
        std::cerr << "usage: " << words[0] << " ADDRESS THRESHOLD\n";
        return 2;
    }
    try {
        const unsigned long threshold = std::stoul(words[2]);
        sheaf::Consumer consumer(words[1], std::chrono::seconds(10));
        running = &consumer;
        std::signal(SIGINT, on_signal);
        std::uint64_t tfs = 0;
        std::uint64_t loud = 0;
        try {
            for (sheaf::Tf& tf : consumer) {
                ++tfs;
                if (const std::uint16_t most = loudest(tf); most >= threshold) {
                    ++loud;
                    tf.give_back("loud", &most, sizeof most);
                }
            }
        } catch (const sheaf::Interrupted&) {
        }
        std::signal(SIGINT, SIG_DFL);
        std::cout << tfs << " TFs, " << loud << " loud\n";
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
