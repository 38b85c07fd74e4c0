// An analysis: prints the id of each TF, the sum of the samples of all its parts, and the time.
//
//     c++ -std=c++17 analysis.cpp -o analysis $(pkg-config --cflags --libs sheaf)
//     ./analysis shm:epn-0
#include <sheaf.hpp>

#include <chrono>
#include <iostream>
#include <thread>

int main(int count, char** words) {
    if (count != 2) {
        std::cerr << "usage: " << words[0] << " ADDRESS\n";
        return 2;
    }
    try {
        for (sheaf::Tf& tf : sheaf::Consumer(words[1], std::chrono::seconds(30))) {
            std::uint64_t sum = 0;
            for (const sheaf_part& part : tf.parts()) {
                for (const std::uint16_t sample : sheaf::as<std::uint16_t>(part)) {
                    sum += sample;
                }
            }
            // Stands for an analysis that takes its time.
            std::this_thread::sleep_for(std::chrono::milliseconds(25));
            const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
            // The line is out before the TF is finished.
            std::cout << tf.id() << ' ' << sum << ' ' << std::fixed << now.count() << std::endl;
        }
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
