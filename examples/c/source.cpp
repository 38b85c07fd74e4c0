// A readout in C++: gives the STFs of one FLP to a paced farm, a heartbeat at a time.
//
//     c++ -std=c++17 source.cpp -o source $(pkg-config --cflags --libs sheaf)
//     ./source farm.toml 1
//
// The farm file has flp.source.kind = "program" and icn.scheduler.mode = "paced". An interrupt ends it.
#include <sheaf.hpp>

#include <csignal>
#include <iostream>
#include <string>
#include <vector>

namespace {

sheaf::Source* running = nullptr;

void on_signal(int) { running->interrupt(); }

// Sends an STF for each heartbeat until the run is over; returns their number.
std::uint64_t read_out(sheaf::Source& source) {
    std::vector<std::uint16_t> samples(50'000);
    std::uint64_t stfs = 0;
    try {
        while (const auto tf = source.next_heartbeat()) {
            samples.assign(samples.size(), static_cast<std::uint16_t>(*tf));
            source.send(*tf, samples.data(), samples.size() * sizeof samples[0]);
            ++stfs;
        }
    } catch (const sheaf::RunOver&) {
    } catch (const sheaf::Interrupted&) {
    }
    return stfs;
}

} // namespace

int main(int count, char** words) {
    if (count != 3) {
        std::cerr << "usage: " << words[0] << " FARM FLP\n";
        return 2;
    }
    try {
        sheaf::Source source(words[1], static_cast<std::uint16_t>(std::stoul(words[2])));
        running = &source;
        std::signal(SIGINT, on_signal);
        std::signal(SIGTERM, on_signal);
        const std::uint64_t stfs = read_out(source);
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
        // Waits until each STF is decided.
        source.close();
        std::cout << "sent " << stfs << " STFs\n";
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
