// Base class of compressed communicators, which work over another communicator ("below"). Passes
// calls that are not compressed to the communicator below. Its Stats count compressed and
// uncompressed calls. Threads and errors are those of Communicator.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "transport/collective/communicator.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/watchdog.h"

namespace longhaul::collective {

class CommunicatorOver : public Communicator {
 public:
  uint32_t rank() const final { return below_->rank(); }
  uint32_t size() const final { return below_->size(); }
  int device() const final { return below_->device(); }
  std::string Describe() const final { return name_ + " over " + below_->Describe(); }

  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) final {
    return Pass([&] { return below_->Broadcast(data, count, dtype, root, queue); });
  }
  Status Barrier(Queue queue) final {
    return Pass([&] { return below_->Barrier(queue); });
  }
  Status Wait(Queue queue, Deadline deadline) override { return below_->Wait(queue, deadline); }
  Status fault() override { return below_->fault(); }
  void Abort(const Status& reason) final { below_->Abort(reason); }
  Status status() const final { return below_->status(); }
  Stats stats() const override { return stats_; }

 protected:
  // `call_limit`: the longest time that a call may block its caller (see Limited); then the group
  // ends. Used only for devices: in host memory the limit of the communicator below applies.
  CommunicatorOver(std::string name, std::shared_ptr<Communicator> below, absl::Duration call_limit)
      : name_(std::move(name)), below_(std::move(below)), call_limit_(call_limit) {
    if (below_->device() >= 0) watchdog_.emplace([this] { below_->Abort(Late()); });
  }

  Communicator& below() { return *below_; }
  Stats& counted() { return stats_; }
  // Runs `call`, which calls the communicator below, and adds what that communicator counted for it
  // to this communicator's Stats.
  template <class Call>
  Status Pass(const Call& call) {
    const Stats before = below_->stats();
    Status status = call();
    const Stats after = below_->stats();
    stats_.calls += after.calls - before.calls;
    stats_.tensor_bytes += after.tensor_bytes - before.tensor_bytes;
    stats_.sent_bytes += after.sent_bytes - before.sent_bytes;
    return status;
  }

  // Runs `call`. On a device: if `call` takes longer than the limit, aborts the group and returns
  // kDeadlineExceeded.
  template <class Call>
  Status Limited(const Call& call) {
    if (!watchdog_.has_value()) return call();
    watchdog_->Arm(call_limit_);
    const Status status = call();
    return watchdog_->Disarm() ? Late() : status;
  }

 private:
  Status Late() const {
    return absl::DeadlineExceededError(
        name_ +
        ": the other ranks did not come within the limit of a call (call_limit): one has "
        "not made the same call, or hangs; look at what the others wait for");
  }

  const std::string name_;
  const std::shared_ptr<Communicator> below_;
  const absl::Duration call_limit_;
  std::optional<Watchdog> watchdog_;  // devices only
  Stats stats_;
};

// Makes the engine for the memory of `below`. `device` null: the host. kInvalidArgument: `below`
// takes memory of another device.
StatusOr<std::unique_ptr<Engine>> EngineFor(const Communicator& below, const cuda::Device* device);

// Makes `memory` at least `bytes` large; growing discards its contents. Growing frees the old
// memory, which waits for all work queued on the device. This work may include a collective that
// waits for a lost rank, so call Reserve within CommunicatorOver::Limited.
Status Reserve(Engine& engine, size_t bytes, OwnedMemory* memory);

}  // namespace longhaul::collective
