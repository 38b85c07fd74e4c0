// Reads files of TFs, and says what is in them.
#include <sheaf.hpp>

#include <algorithm>
#include <iostream>

int main(int count, char** words) {
    std::uint64_t tfs = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first = UINT64_MAX;
    std::uint64_t last = 0;
    for (int at = 1; at < count; ++at) {
        sheaf::File file(words[at]);
        for (sheaf::Tf& tf : file) {
            tf.check();
            // A TF may outlive its turn.
            const sheaf::Tf kept = std::move(tf);
            if (kept.missing().size() != 0 || kept.part(1) == nullptr || kept.part(2) != nullptr) {
                std::cout << "TF " << kept.id() << " of run " << kept.run() << " is incomplete\n";
                return 1;
            }
            ++tfs;
            bytes += kept.bytes();
            first = std::min(first, kept.id());
            last = std::max(last, kept.id());
        }
    }
    std::cout << tfs << " TFs from " << first << " to " << last << ", " << bytes << " bytes\n";
}
