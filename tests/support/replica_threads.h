// Runs the data-parallel replicas of one stage in one process. Each replica has a Reducer, which
// sums gradients over replicas and sends updated parameters around, a thread and a mailbox.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "codec/thread_pool.h"
#include "tests/support/mailbox.h"
#include "transport/replicas/host_arithmetic.h"
#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

using Tensors = std::vector<std::vector<float>>;  // the values of each parameter

class ReplicaThreads {
 public:
  // Updates the parameters in `own`, the pieces of `bucket` for which `replica` keeps the optimizer
  // state. A bucket is a group of parameters, or of parts of them, that are reduced together. Runs
  // on the replica's thread, once for each bucket and step.
  using Optimizer =
      std::function<void(uint32_t replica, uint32_t bucket, std::span<const OwnPiece> own)>;

  // Makes options.replicas replicas, which all start with a copy of `values`, one tensor for each
  // of `parameters`. `coding_threads`: threads that code messages, for each replica. Errors fail
  // the current test.
  ReplicaThreads(const std::vector<ReplicatedParameter>& parameters, const LayoutOptions& options,
                 const Tensors& values, size_t coding_threads = 1) {
    replicas_.resize(options.replicas);
    for (uint32_t r = 0; r < options.replicas; ++r) {
      Replica& replica = replicas_[r];
      replica.values = values;
      replica.outbox.all = &replicas_;
      replica.outbox.own = r;
      replica.inbox = std::make_unique<testing::Mailbox<Message>>();
      auto layout = Layout::Make(parameters, options);
      EXPECT_TRUE(layout.ok()) << layout.status();
      replica.pool = std::make_unique<codec::ThreadPool>(coding_threads);
      replica.arithmetic = std::make_unique<HostArithmetic>(replica.pool.get());
      auto reducer = Reducer::Create(
          *std::move(layout), {.replica = r, .seed = 1, .arithmetic = replica.arithmetic.get()},
          &replica.outbox);
      EXPECT_TRUE(reducer.ok()) << reducer.status();
      replica.reducer = *std::move(reducer);
      std::vector<std::span<const float>> masters(values.begin(), values.end());
      EXPECT_TRUE(replica.reducer->BeginMasters(masters).ok());
    }
  }

  // Runs the steps from `first` to `last`, both included, on all replicas, each at its own speed.
  // Returns when all have ended. Each replica's thread calls `gradients` at the beginning of a
  // step; the result must live until the step ends. Returns the first replica's error;
  // kDeadlineExceeded: no message came for 30 s.
  Status Run(uint64_t first, uint64_t last,
             const std::function<const Tensors&(uint32_t replica, uint64_t step)>& gradients,
             const Optimizer& optimizer) {
    std::vector<Status> ends(replicas_.size());
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < replicas_.size(); ++r) {
      threads.emplace_back([&, r] {
        for (uint64_t step = first; step <= last && ends[r].ok(); ++step) {
          ends[r] = RunStep(r, step, gradients(r, step), optimizer);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& end : ends) {
      if (!end.ok()) return end;
    }
    return absl::OkStatus();
  }

  // Not during Run.
  Tensors& values(uint32_t replica) { return replicas_[replica].values; }
  Reducer& reducer(uint32_t replica) { return *replicas_[replica].reducer; }
  uint32_t size() const { return static_cast<uint32_t>(replicas_.size()); }

 private:
  struct Message {
    uint32_t from = 0;
    std::vector<std::byte> bytes;
  };
  struct Replica;
  struct ToMailboxes final : Outbox {
    std::vector<Replica>* all = nullptr;
    uint32_t own = 0;
    Status Send(uint32_t to, MessageKind /*kind*/, std::vector<std::byte> message) override {
      (*all)[to].inbox->Push({own, std::move(message)});
      return absl::OkStatus();
    }
  };
  struct Replica {
    Tensors values;
    std::unique_ptr<testing::Mailbox<Message>> inbox;
    ToMailboxes outbox;
    std::unique_ptr<codec::ThreadPool> pool;
    std::unique_ptr<HostArithmetic> arithmetic;
    std::unique_ptr<Reducer> reducer;
  };

  Status RunStep(uint32_t r, uint64_t step, const Tensors& gradients, const Optimizer& optimizer) {
    Replica& replica = replicas_[r];
    Reducer& reducer = *replica.reducer;
    std::vector<ParameterMemory> memory;
    for (size_t k = 0; k < gradients.size(); ++k) {
      memory.push_back({gradients[k], replica.values[k]});
    }
    Status status = reducer.Begin(step, std::move(memory));
    const auto buckets = static_cast<uint32_t>(reducer.layout().buckets().size());
    std::vector<bool> stepped(buckets);
    const auto step_what_is_reduced = [&] {
      for (uint32_t b = 0; b < buckets && status.ok(); ++b) {
        if (!reducer.IsReduced(b) || stepped[b]) continue;
        stepped[b] = true;
        optimizer(r, b, reducer.Own(b));
        status = reducer.GiveParameters(b);
      }
    };
    for (uint32_t b = 0; b < buckets && status.ok(); ++b) {
      status = reducer.GiveGradients((b + r) % buckets);  // replicas begin with different buckets
    }
    step_what_is_reduced();
    while (status.ok() && !reducer.IsDone()) {
      auto message = replica.inbox->Take();
      if (!message) return absl::DeadlineExceededError("no message came");
      status = reducer.Take(message->from, std::move(message->bytes));
      step_what_is_reduced();
    }
    return status;
  }

  std::vector<Replica> replicas_;
};

}  // namespace longhaul::replicas
