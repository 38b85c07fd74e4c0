// A FairMQ device that has the TFs of an EPN: each is a message of several parts on its channel "data".
//
//     sheaf-fairmq-processing --id processing --control static --epn shm:/run/sheaf/epn-0
//         --channel-config name=data,type=push,method=connect,address=tcp://localhost:7310
//
// The first part is the id of the TF, then the FLP of each part that follows: 8 bytes each. On the transport `zeromq` no
// payload is copied: the EPN has the memory of a TF back when FairMQ has sent all parts of it.
#include <fairmq/Device.h>
#include <fairmq/runDevice.h>
#include <sheaf.hpp>

#include <cstring>

namespace {

using Shared = std::shared_ptr<sheaf::Tf>;

void release(void*, void* tf) { delete static_cast<Shared*>(tf); }

class Processing : public fair::mq::Device {
    void InitTask() override {
        consumer_.emplace(fConfig->GetProperty<std::string>("epn"), std::chrono::seconds(30));
    }

    bool ConditionalRun() override {
        std::optional<sheaf::Tf> next = consumer_->next(std::chrono::milliseconds(100));
        if (!next) {
            return !consumer_->ended();
        }
        const auto tf = std::make_shared<sheaf::Tf>(std::move(*next));
        std::vector<std::uint64_t> head{tf->id()};
        fair::mq::Parts payload;
        for (const sheaf_part& part : tf->parts()) {
            head.push_back(part.flp);
            void* data = const_cast<void*>(part.data);
            payload.AddPart(NewMessageFor("data", 0, data, part.size, release, new Shared(tf)));
        }
        fair::mq::Parts message;
        auto first = NewMessageFor("data", 0, head.size() * sizeof head.front());
        std::memcpy(first->GetData(), head.data(), first->GetSize());
        message.AddPart(std::move(first));
        message.AddPart(std::move(payload));
        while (Send(message, "data", 0, 100) < 0) {
            if (NewStatePending()) {
                LOG(warn) << "TF " << tf->id() << " was not sent before the device was stopped";
                return false;
            }
        }
        return true;
    }

    void ResetTask() override { consumer_.reset(); }

    std::optional<sheaf::Consumer> consumer_;
};

} // namespace

void addCustomOptions(boost::program_options::options_description& options) {
    namespace po = boost::program_options;
    options.add_options()("epn", po::value<std::string>()->required(), "address of the EPN, such as shm:/run/sheaf/epn-0");
}

std::unique_ptr<fair::mq::Device> getDevice(fair::mq::ProgOptions&) { return std::make_unique<Processing>(); }
