// Replicas of one stage: each gives its gradients, each steps a shard of the parameters by the mean
// over all, and all get the new parameters. A step, with any number of buckets under way at once:
//
//   reducer->Begin(step, memory);
//   reducer->GiveGradients(bucket);              // as soon as the last backward has left them
//   reducer->Take(from, message);                // whatever comes from the other replicas
//   if (reducer->IsReduced(bucket)) ...          // Own(bucket)[k].gradient is the mean
//   ... the optimizer steps Own(bucket)[k].master by it ...
//   reducer->GiveParameters(bucket);             // the masters as they are now
//   if (reducer->IsDone()) ...                   // `value` of all parameters is new; next Begin
//
// Gradients go straight from each replica to the owner, whatever their number: a replica sends as
// many bytes as along a ring, each number is rounded once and not once a hop, one message is under
// way and not replicas - 1 in a row, and the owner can sum in the order of replicas. So a step
// repeats to the bit. Parameters, which nobody changes on the way, go straight or along a ring.
//
// All replicas end a step with the same values. Masters are the owner's alone: values are rounded
// or lag behind, and the difference is the error feedback of the forms bf16 and difference4.
//
// Threads: one at a time. Nothing blocks; messages leave through the outbox during calls.
// Errors: kFailedPrecondition for calls out of order; kInvalidArgument for a peer's message that
// cannot be, with a sentence that names the replica. After an error from Take the reducer is of no
// more use.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_REDUCER_H_
#define LONGHAUL_TRANSPORT_REPLICAS_REDUCER_H_

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

// Where messages leave. Each arrives whole, once, at Take of replica `to`; messages of one replica
// to another arrive in order.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // Never blocks, never calls the reducer.
  virtual Status Send(uint32_t to, MessageKind kind, std::vector<std::byte> message) = 0;
};

struct ReducerOptions {
  uint32_t replica = 0;
  uint64_t seed = 0;  // of stochastic rounding; the run's
  // All replicas, in the order in which parameters travel from one to the next, the last to the
  // first. Empty: owners send them to all others. All replicas say the same.
  std::vector<uint32_t> ring;
  // In whose memory all numbers are; outlives the reducer. Null: the host's, without other threads.
  Arithmetic* arithmetic = nullptr;
};

// Bytes of messages, headers included. What is asked for is part of neither sketch nor union.
struct ByteCounts {
  uint64_t gradients = 0, index = 0, sketch = 0, asked_for = 0, parameters = 0;
  // A message of this kind; `of_asked_for` of its bytes are numbers that were asked for.
  void Add(MessageKind kind, uint64_t bytes, uint64_t of_asked_for);
  uint64_t total() const { return gradients + index + sketch + asked_for + parameters; }
};

// What a checkpoint must have beside the values: "NAME.master" of owned pieces, "NAME.residual". In
// the arithmetic's memory.
struct StateTensor {
  std::string name;
  uint64_t first = 0;  // element of the parameter
  std::span<float> values;
};

class Reducer {
 public:
  // `outbox` outlives the reducer. Masters begin as zeros: BeginMasters or a checkpoint's State.
  // Errors: kInvalidArgument for options that do not fit the layout, and the arithmetic's.
  static StatusOr<std::unique_ptr<Reducer>> Create(Layout layout, ReducerOptions options,
                                                   Outbox* outbox);

  const Layout& layout() const { return layout_; }
  // Masters become these values, one span a parameter.
  Status BeginMasters(std::span<const std::span<const float>> values);
  // The same tensors in the same order for the same layout.
  std::vector<StateTensor> State();

  // Steps count up by one. `memory` stays valid until IsDone; a bucket's gradients do not change
  // from GiveGradients to IsReduced.
  Status Begin(uint64_t step, std::vector<ParameterMemory> memory);
  Status GiveGradients(uint32_t bucket);
  Status Take(uint32_t from, std::vector<std::byte> message);
  bool IsReduced(uint32_t bucket) const { return buckets_[bucket].reduced; }
  std::span<const OwnPiece> Own(uint32_t bucket) const { return buckets_[bucket].own; }
  Status GiveParameters(uint32_t bucket);
  // Instead of GiveParameters, on all replicas, once all buckets are reduced: nothing of the step
  // is applied.
  Status SkipStep();
  bool IsGathered(uint32_t bucket) const;
  bool IsDone() const;

  // Since the reducer was made.
  const ByteCounts& sent() const { return sent_; }
  const ByteCounts& received() const { return received_; }
  // Of shards that this replica owns, in this step so far.
  SparseCounts sparse_counts() const;

 private:
  struct BucketState {
    bool given = false, reduced = false, published = false;
    std::vector<OwnPiece> own;     // dense ones first
    std::vector<Numbers> numbers;  // theirs
    uint32_t dense_missing = 0;
    std::vector<std::vector<std::byte>> dense;      // messages, by replica
    std::optional<SparseSum> sum;                   // where the own shard has sparse pieces
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
  Status TakeParameters(uint32_t from, const MessageHeader& header, std::vector<std::byte> message);
  Status CheckHeader(uint32_t from, const MessageHeader& header) const;
  std::vector<std::byte> New(MessageKind kind, uint32_t bucket, uint32_t owner,
                             uint64_t bytes) const;
  Status Send(uint32_t to, MessageKind kind, std::vector<std::byte> message,
              uint64_t asked_for = 0);
  // Along the ring.
  uint32_t Next() const;
  uint32_t Previous() const;

  const Layout layout_;
  const ReducerOptions options_;
  Outbox* const outbox_;
  std::unique_ptr<Arithmetic> own_arithmetic_;
  Arithmetic* const arithmetic_;
  Residuals residuals_;
  std::vector<ParameterMemory> memory_;
  std::vector<BucketState> buckets_;
  std::optional<uint64_t> step_;
  std::map<HeldKey, std::vector<std::byte>> held_;  // of the step after this one
  ByteCounts sent_, received_;
};

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_REDUCER_H_
