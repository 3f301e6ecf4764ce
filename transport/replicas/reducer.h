// Reduce-scatter and all-gather over the data-parallel replicas of one stage: each replica gives
// its gradients, steps one shard of the parameters by the mean over all, and gets all new
// parameters. A step, with any number of buckets in flight at once:
//
//   reducer->Begin(step, memory);
//   reducer->GiveGradients(bucket);              // as soon as the last backward has left them
//   reducer->Take(from, message);                // whatever comes from the other replicas
//   if (reducer->IsReduced(bucket)) ...          // Own(bucket)[k].gradient is the mean
//   ... the optimizer steps Own(bucket)[k].master by it ...
//   reducer->GiveParameters(bucket);             // the masters as they are now
//   if (reducer->IsDone()) ...                   // `value` of all parameters is new; next Begin
//
// Gradients go straight from each replica to the owner, whatever the number of replicas. A replica
// sends as many bytes as along a ring, but each number is rounded once and not once a hop, one
// message is under way and not replicas - 1 in a row, and the owner can sum in the order of
// replicas. So a step repeats to the bit. Parameters go straight from their owner to all others.
//
// All replicas end a step with the same values. Only the owner has the masters. Values are rounded
// or lag behind, and the difference is the error feedback of the forms bf16 and difference4.
//
// Threads: one at a time. Calls never block; messages leave through the outbox during calls.
// Errors: kFailedPrecondition for calls out of order; kInvalidArgument for an impossible message of
// a peer, with a sentence that names the replica. After an error from Take the reducer cannot be
// used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "transport/replicas/arithmetic.h"
#include "transport/replicas/layout.h"
#include "transport/replicas/memory.h"
#include "transport/replicas/message.h"
#include "transport/replicas/sparse.h"

namespace longhaul::replicas {

// Sends messages. Each arrives whole and exactly once at Take of replica `to`; messages from one
// replica to another arrive in order.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // Never blocks, never calls the reducer.
  virtual Status Send(uint32_t to, MessageKind kind, std::vector<std::byte> message) = 0;
};

struct ReducerOptions {
  uint32_t replica = 0;
  uint64_t seed = 0;  // seed of stochastic rounding; the run's
  // Owner of the memory of all numbers; outlives the reducer. Null: host memory, single-threaded.
  Arithmetic* arithmetic = nullptr;
};

// Bytes of messages, headers included. `asked_for` is counted in neither sketch nor union.
struct ByteCounts {
  uint64_t gradients = 0, index = 0, sketch = 0, asked_for = 0, parameters = 0;
  // Counts a message of this kind, in which `of_asked_for` bytes are asked-for numbers.
  void Add(MessageKind kind, uint64_t bytes, uint64_t of_asked_for);
  uint64_t total() const { return gradients + index + sketch + asked_for + parameters; }
};

// State for a checkpoint beside the values: "NAME.master" of owned pieces, and "NAME.residual", in
// the arithmetic's memory.
struct StateTensor {
  std::string name;
  uint64_t first = 0;  // element of the parameter
  std::span<float> values;
};

class Reducer {
 public:
  // `outbox` outlives the reducer. Masters begin as zeros: set them by BeginMasters or from a
  // checkpoint's State. kInvalidArgument: options do not fit the layout. Other errors come from the
  // arithmetic.
  static StatusOr<std::unique_ptr<Reducer>> Create(Layout layout, ReducerOptions options,
                                                   Outbox* outbox);

  const Layout& layout() const { return layout_; }
  // Sets the masters to these values, one span a parameter.
  Status BeginMasters(std::span<const std::span<const float>> values);
  // Returns the same tensors in the same order for the same layout.
  std::vector<StateTensor> State();

  // Begins a step; steps count up by one. `memory` must stay valid until IsDone. A bucket's
  // gradients must not change from GiveGradients to IsReduced.
  Status Begin(uint64_t step, std::vector<ParameterMemory> memory);
  Status GiveGradients(uint32_t bucket);
  Status Take(uint32_t from, std::vector<std::byte> message);
  bool IsReduced(uint32_t bucket) const { return buckets_[bucket].reduced; }
  std::span<const OwnPiece> Own(uint32_t bucket) const { return buckets_[bucket].own; }
  Status GiveParameters(uint32_t bucket);
  // Replaces GiveParameters on all replicas, once all buckets are reduced. The step changes no
  // parameter.
  Status SkipStep();
  bool IsGathered(uint32_t bucket) const;
  bool IsDone() const;

  // Totals since the reducer was made.
  const ByteCounts& sent() const { return sent_; }
  const ByteCounts& received() const { return received_; }
  // Counts of this step so far, for shards that this replica owns.
  SparseCounts sparse_counts() const;

 private:
  struct BucketState {
    bool given = false, reduced = false, published = false;
    std::vector<OwnPiece> own;     // dense pieces first
    std::vector<Numbers> numbers;  // memory of `own`
    uint32_t dense_missing = 0;
    std::vector<std::vector<std::byte>> dense;      // messages, by replica
    std::optional<SparseSum> sum;                   // set if the own shard has sparse pieces
    std::vector<SparseContribution> contributions;  // by owner
    std::vector<bool> union_came, gathered;         // by owner
  };
  using HeldKey =
      std::tuple<uint32_t, MessageKind, uint32_t, uint32_t>;  // from, kind, bucket, owner

  Reducer(Layout layout, ReducerOptions options, Outbox* outbox);
  Status MakeNumbers();
  const Shard& ShardOf(uint32_t bucket, uint32_t owner) const {
    return layout_.buckets()[bucket].shards[owner];
  }
  std::span<const OwnPiece> OwnDense(uint32_t bucket) const;
  std::span<const OwnPiece> OwnSparse(uint32_t bucket) const;
  void Reset(uint32_t bucket);
  Status Contribute(uint32_t bucket, uint32_t owner);
  Status Advance(uint32_t bucket);
  Status Hold(uint32_t from, const MessageHeader& header, std::vector<std::byte> message);
  Status Handle(uint32_t from, const MessageHeader& header, std::vector<std::byte> message);
  Status TakeGradients(uint32_t from, const MessageHeader& header, std::vector<std::byte> message);
  Status TakeIndex(uint32_t from, const MessageHeader& header, std::span<const std::byte> payload);
  Status TakeUnion(uint32_t from, const MessageHeader& header, std::span<const std::byte> payload);
  Status TakeSketch(uint32_t from, const MessageHeader& header, std::span<const std::byte> payload);
  Status TakeParameters(uint32_t from, const MessageHeader& header,
                        std::span<const std::byte> payload);
  Status CheckHeader(uint32_t from, const MessageHeader& header) const;
  std::vector<std::byte> New(MessageKind kind, uint32_t bucket, uint32_t owner,
                             uint64_t bytes) const;
  Status Send(uint32_t to, MessageKind kind, std::vector<std::byte> message,
              uint64_t asked_for = 0);

  const Layout layout_;
  const ReducerOptions options_;
  Outbox* const outbox_;
  std::unique_ptr<Arithmetic> own_arithmetic_;
  Arithmetic* const arithmetic_;
  Residuals residuals_;
  std::vector<ParameterMemory> memory_;
  std::vector<BucketState> buckets_;
  std::optional<uint64_t> step_;
  std::map<HeldKey, std::vector<std::byte>> held_;  // messages of the next step
  ByteCounts sent_, received_;
};

}  // namespace longhaul::replicas
