#include "worker/measuring/reach_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace longhaul::worker {
namespace {

using transport::Lane;
using transport::Link;

constexpr absl::Duration kReachCloseLimit = absl::Seconds(1);
constexpr absl::Duration kLongestLimit = absl::Seconds(60);

// A link's error without what is known here: which link, and that time is up.
std::string Reason(const Status& status, const std::string& address) {
  const std::string message(Message(status));
  const std::string of_address = "; " + address + ": ";
  const size_t at = message.find(of_address);
  return at == std::string::npos ? message : message.substr(at + of_address.size());
}

}  // namespace

// The answer to one check, on the dialling side. Runs on the transport's loop.
class ReachChecks::Answer {
 public:
  Answer(std::shared_ptr<Shared> shared, const v1::TryReach& asked)
      : shared_(std::move(shared)),
        check_(asked.check()),
        missing_(asked.addresses_size()),
        problems_(static_cast<size_t>(asked.addresses_size())) {}

  void Set(size_t address, std::string problem) {
    problems_[address] = std::move(problem);
    if (--missing_ > 0) return;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->under_way.erase(check_);
    }
    v1::WorkerMessage message;
    message.mutable_reach_tried()->set_check(check_);
    for (std::string& one : problems_) message.mutable_reach_tried()->add_problems(std::move(one));
    shared_->send(std::move(message));
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const uint64_t check_;
  int missing_;
  std::vector<std::string> problems_;
};

// One address, at either side. Both close the link as soon as it is open; what a dialler does not
// let go of ends with the check's limit.
class ReachChecks::Attempt : public transport::LinkHandler {
 public:
  // `answer` is null at the side that is dialled.
  Attempt(std::shared_ptr<Answer> answer, size_t index, std::string address, Deadline deadline)
      : answer_(std::move(answer)),
        index_(index),
        address_(std::move(address)),
        deadline_(deadline) {}

  void Opened(StatusOr<std::shared_ptr<Link>> link) {
    if (answer_) answer_->Set(index_, link.ok() ? "" : Reason(link.status(), address_));
    if (!link.ok()) return;
    link_ = *std::move(link);
    link_->Close(answer_ ? Deadline::After(kReachCloseLimit) : deadline_);
  }
  void OnFrame(Lane /*lane*/, std::span<const std::byte> /*payload*/) override {}
  void OnClosed(const Status& /*reason*/) override { link_.reset(); }

 private:
  const std::shared_ptr<Answer> answer_;
  const size_t index_;
  const std::string address_;
  const Deadline deadline_;
  std::shared_ptr<Link> link_;
};

ReachChecks::ReachChecks(transport::TransportsByName transports,
                         std::function<void(v1::WorkerMessage)> send)
    : transports_(std::move(transports)), shared_(std::make_shared<Shared>()) {
  shared_->send = std::move(send);
}

void ReachChecks::Shutdown() {
  const std::lock_guard lock(shared_->mutex);
  shared_->closing = true;
}

void ReachChecks::Handle(const v1::WorkerCommand& command) {
  const v1::TryReach& asked = command.try_reach();
  const auto found = transports_.find(asked.transport());
  // The lock is held while the links are begun, so that Shutdown waits for that; no callback runs
  // inside.
  const std::lock_guard lock(shared_->mutex);
  if (shared_->closing || found == transports_.end() || asked.addresses().empty()) return;
  std::shared_ptr<Answer> answer;
  if (asked.dial()) {
    if (!shared_->under_way.insert(asked.check()).second) return;
    answer = std::make_shared<Answer>(shared_, asked);
  }
  const absl::Duration limit = std::min(absl::Seconds(asked.limit_seconds()), kLongestLimit);
  const Deadline deadline = Deadline::After(limit);
  const transport::LinkOptions options{
      .peer_timeout = limit,
      .peer_at = {asked.dialler_addresses().begin(), asked.dialler_addresses().end()}};
  for (int i = 0; i < asked.addresses_size(); ++i) {
    const transport::LinkKey key{RunId(fmt::format("reach:{}", asked.check())), Stamp(1),
                                 EdgeId(static_cast<uint32_t>(i))};
    const auto attempt =
        std::make_shared<Attempt>(answer, static_cast<size_t>(i), asked.addresses(i), deadline);
    const auto opened = [attempt](StatusOr<std::shared_ptr<Link>> link) {
      attempt->Opened(std::move(link));
    };
    found->second->Open(asked.dial(), {asked.addresses(i)}, key, asked.link_secret(), attempt,
                        options, deadline, opened);
  }
}

}  // namespace longhaul::worker
