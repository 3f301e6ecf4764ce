// Replicas of a stage on one thread: messages wait in one queue.
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/replicas/host_arithmetic.h"
#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

template <class T>
T Must(StatusOr<T> made) {
  if (made.ok()) return *std::move(made);
  fmt::print(stderr, "{}\n", Message(made.status()));
  std::exit(1);
}
inline void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", Message(status));
  std::exit(1);
}

class QueuedReplicas {
 public:
  using Memory = std::function<std::vector<ParameterMemory>(uint32_t replica)>;
  using Optimizer =
      std::function<void(uint32_t replica, uint32_t bucket, std::span<const OwnPiece>)>;

  QueuedReplicas(const std::vector<ReplicatedParameter>& parameters, const LayoutOptions& options,
                 std::span<const std::span<const float>> values, uint64_t seed,
                 codec::Parallel* parallel = nullptr)
      : arithmetic_(parallel) {
    for (uint32_t r = 0; r < options.replicas; ++r) {
      outboxes_.push_back(std::make_unique<ToQueue>(r, &queue_));
      reducers_.push_back(Must(Reducer::Create(
          Must(Layout::Make(parameters, options)),
          {.replica = r, .seed = seed, .arithmetic = &arithmetic_}, outboxes_[r].get())));
      Must(reducers_[r]->BeginMasters(values));
    }
  }

  void Step(uint64_t step, const Memory& memory, const Optimizer& optimizer) {
    const auto buckets = static_cast<uint32_t>(reducers_[0]->layout().buckets().size());
    for (uint32_t r = 0; r < reducers_.size(); ++r) Must(reducers_[r]->Begin(step, memory(r)));
    for (uint32_t b = 0; b < buckets; ++b) {
      for (const auto& reducer : reducers_) Must(reducer->GiveGradients(b));
      Deliver();
      for (uint32_t r = 0; r < reducers_.size(); ++r) {
        optimizer(r, b, reducers_[r]->Own(b));
        Must(reducers_[r]->GiveParameters(b));
      }
      Deliver();
    }
  }

  Reducer& reducer(uint32_t replica) { return *reducers_[replica]; }

 private:
  struct Message {
    uint32_t from = 0, to = 0;
    std::vector<std::byte> bytes;
  };
  struct ToQueue final : Outbox {
    ToQueue(uint32_t own_number, std::deque<Message>* to) : own(own_number), queue(to) {}
    uint32_t own;
    std::deque<Message>* queue;
    Status Send(uint32_t to, MessageKind /*kind*/, std::vector<std::byte> message) override {
      queue->push_back({own, to, std::move(message)});
      return absl::OkStatus();
    }
  };

  void Deliver() {
    while (!queue_.empty()) {
      Message message = std::move(queue_.front());
      queue_.pop_front();
      Must(reducers_[message.to]->Take(message.from, std::move(message.bytes)));
    }
  }

  HostArithmetic arithmetic_;
  std::deque<Message> queue_;
  std::vector<std::unique_ptr<ToQueue>> outboxes_;
  std::vector<std::unique_ptr<Reducer>> reducers_;
};

}  // namespace longhaul::replicas
