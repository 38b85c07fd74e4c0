// A FairMQ device that is an FLP: each message of its channel "data" is an STF of a farm.
//
//     sheaf-fairmq-readout --id readout --control static --farm farm.toml --flp 0
//         --channel-config name=data,type=pull,method=bind,address=tcp://127.0.0.1:7210
//
// The first part of a message is the id of its TF: 8 bytes, little-endian; the parts behind it are the payload. With
// `--count` messages have no ids: they are counted. The farm file has flp.source.kind = "program".
#include <fairmq/Device.h>
#include <fairmq/runDevice.h>
#include <sheaf.hpp>

#include <cstring>

namespace {

class Readout : public fair::mq::Device {
public:
    Readout() { OnData("data", &Readout::take); }

private:
    void InitTask() override {
        has_ids_ = !fConfig->GetProperty<bool>("count");
        sheaf::Source::Options options;
        options.events = fConfig->GetProperty<std::string>("events");
        const auto flp = fConfig->GetProperty<std::uint16_t>("flp");
        source_.emplace(fConfig->GetProperty<std::string>("farm"), flp, options);
    }

    bool take(fair::mq::Parts& parts, int) {
        std::vector<sheaf_bytes> payload;
        for (const auto& part : parts) {
            payload.push_back({part->GetData(), part->GetSize()});
        }
        if (has_ids_) {
            if (payload.empty() || payload.front().size != sizeof next_) {
                throw std::runtime_error("expected an id of 8 bytes as the first part of a message");
            }
            std::memcpy(&next_, payload.front().data, sizeof next_);
            payload.erase(payload.begin());
        }
        try {
            // A farm without room makes the device wait, and its peers by that.
            while (!source_->send(next_, payload, std::chrono::milliseconds(100))) {
                if (NewStatePending()) {
                    LOG(warn) << "TF " << next_ << ": the farm had no room for its STF before the device was stopped";
                    return false;
                }
            }
        } catch (const sheaf::RunOver&) {
            return false;
        }
        ++next_;
        return true;
    }

    // Each STF is decided then.
    void ResetTask() override { source_.reset(); }

    std::optional<sheaf::Source> source_;
    std::uint64_t next_ = 0;
    bool has_ids_ = true;
};

} // namespace

void addCustomOptions(boost::program_options::options_description& options) {
    namespace po = boost::program_options;
    options.add_options()("farm", po::value<std::string>()->required(), "farm file")(
        "flp", po::value<std::uint16_t>()->default_value(0), "number of the FLP")(
        "events", po::value<std::string>()->default_value(""), "event log of the FLP")(
        "count", po::value<bool>()->default_value(false)->implicit_value(true), "messages have no ids: count them");
}

std::unique_ptr<fair::mq::Device> getDevice(fair::mq::ProgOptions&) { return std::make_unique<Readout>(); }
