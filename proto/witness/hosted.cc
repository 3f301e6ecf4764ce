#include "proto/witness/hosted.h"

#include <string>
#include <utility>

#include "base/log.h"

namespace longhaul::witness {
namespace {

constexpr absl::Duration kTryAgain = absl::Seconds(1);

}  // namespace

HostedWitness::HostedWitness(Options options)
    : options_(std::move(options)), thread_([this] { Loop(); }) {}

HostedWitness::~HostedWitness() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status HostedWitness::failure() const {
  const std::lock_guard lock(mutex_);
  return witness_ == nullptr ? failure_ : witness_->failure();
}

void HostedWitness::Loop() {
  std::string last;
  while (true) {
    StatusOr<std::unique_ptr<Witness>> started = Witness::Start(options_);
    std::unique_lock lock(mutex_);
    if (closing_) return;
    if (started.ok()) {
      witness_ = *std::move(started);
      return;
    }
    const std::string trouble(Message(started.status()));
    if (!absl::IsUnavailable(started.status())) {
      LogError("the witness: {}", trouble);
      failure_ = started.status();
      return;
    }
    if (std::exchange(last, trouble) != trouble) {
      LogWarning("no coordinator serves the witness: {}; dialling again", trouble);
    }
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kTryAgain), [this] { return closing_; });
    if (closing_) return;
  }
}

}  // namespace longhaul::witness
