// Reduce-scatter and all-gather over the data-parallel replicas of one stage. Each replica gives
// its gradients, updates its own shards of the parameters by the mean gradients of all replicas,
// and gets all new parameters. The layout (layout.h) cuts parameters into buckets, and buckets into
// shards. One step, with any number of buckets in flight at once:
//
//   reducer->Begin(step, memory);
//   reducer->GiveGradients(bucket);              // as soon as the last backward has made them
//   reducer->Take(from, message);                // each message of the other replicas
//   if (reducer->IsReduced(bucket)) ...          // Own(bucket)[k].gradient is the mean
//   ... the optimizer updates Own(bucket)[k].master by this gradient ...
//   reducer->GiveParameters(bucket);             // sends the masters as they are now
//   if (reducer->IsDone()) ...                   // `value` of all parameters is new; next Begin
//
// Each replica sends its gradients straight to the owner of the shard, and each owner sends the new
// parameters straight to all others. A replica sends as many bytes as in a ring all-reduce. But a
// ring would round each number again at each hop, and would send one message after the other. Here
// each number is rounded once, and all messages are sent at once. The owner sums in the order of
// replicas, so a repeated step gives the same bits.
//
// All replicas end a step with the same values. Only the owner has a shard's masters, the fp32
// parameters that the optimizer updates. In the forms bf16 and difference4 the values differ a
// little from the masters. Later steps send this difference, because the masters keep it.
//
// Threads: one call at a time. Calls never wait for other replicas; they pass messages to the
// outbox. Errors: kFailedPrecondition for calls out of order; kInvalidArgument for an impossible
// message, with a text that names its replica; kUnimplemented for a message of another version;
// errors of the outbox and the arithmetic. After an error from Take the reducer cannot be used.
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

// Sends messages for a reducer. Each message must arrive whole and exactly once at Take of replica
// `to`. Messages from one replica to another must arrive in order.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // Must not block, and must not call the reducer. If the result is an error, the reducer's call
  // returns that error.
  virtual Status Send(uint32_t to, MessageKind kind, std::vector<std::byte> message) = 0;
};

// `replica`: the number of this replica, below LayoutOptions::replicas.
struct ReducerOptions {
  uint32_t replica = 0;
  uint64_t seed = 0;  // the run's seed, for stochastic rounding
  // Owns the memory of all numbers, and must outlive the reducer. Null: host memory, one thread.
  Arithmetic* arithmetic = nullptr;
  // Steps may be skipped. Keeps a copy of the residuals, 4 bytes for each of their numbers.
  bool may_skip = false;
};

// Bytes of messages by kind, headers included. `index` counts unions too. `asked_for` counts the
// positions that a union leaves out of the sketch, and their numbers in the sketch's message, 4
// bytes each. The other counts do not include these bytes.
struct ByteCounts {
  uint64_t gradients = 0, index = 0, sketch = 0, asked_for = 0, parameters = 0;
  // Counts a message of `bytes` bytes; `of_asked_for` of them are counted as `asked_for`.
  void Add(MessageKind kind, uint64_t bytes, uint64_t of_asked_for);
  uint64_t total() const { return gradients + index + sketch + asked_for + parameters; }
};

// A part of the reducer's state for a checkpoint, which does not include the values: "NAME.master"
// of an owned piece, or "NAME.residual". NAME is the parameter's. `values` are in the arithmetic's
// memory.
struct StateTensor {
  std::string name;
  uint64_t first = 0;  // the first value's index in the parameter
  std::span<float> values;
};

class Reducer {
 public:
  // `outbox` must not be null, and must outlive the reducer. Masters begin as zeros: set them by
  // BeginMasters, or from a checkpoint through State. kInvalidArgument: the layout has no such
  // replica. Other errors come from the arithmetic.
  static StatusOr<std::unique_ptr<Reducer>> Create(Layout layout, ReducerOptions options,
                                                   Outbox* outbox);

  const Layout& layout() const { return layout_; }
  // Sets the masters to the run's initial values: one span for each parameter, in the arithmetic's
  // memory. kInvalidArgument: `values` do not fit the layout.
  Status BeginMasters(std::span<const std::span<const float>> values);
  // Returns the tensors to save, or to overwrite when a checkpoint is restored. Equal layouts give
  // the same tensors in the same order. The spans are valid as long as the reducer.
  std::vector<StateTensor> State();

  // Begins a step. The first step may have any number; each later number is one more than the last.
  // `memory`: one entry for each parameter; the spans must stay valid until IsDone. A bucket's
  // gradients must not change between GiveGradients and IsReduced.
  Status Begin(uint64_t step, std::vector<ParameterMemory> memory);
  // Sends a bucket's gradients to the owners. Call it once for each bucket in a step.
  Status GiveGradients(uint32_t bucket);
  // Takes a message from replica `from`, of this step or of the next one; before the first Begin,
  // of the first step. May send an answer.
  Status Take(uint32_t from, std::vector<std::byte> message);
  bool IsReduced(uint32_t bucket) const { return buckets_[bucket].reduced; }
  // The pieces of a bucket that this replica owns, dense ones first.
  std::span<const OwnPiece> Own(uint32_t bucket) const { return buckets_[bucket].own; }
  // Sends this replica's shard of a reduced bucket, if it has one, to all others. Call it once for
  // each bucket in a step, even if the shard is empty.
  Status GiveParameters(uint32_t bucket);
  // Ends the step without a change of parameters. All replicas must call it, once all buckets are
  // reduced, instead of GiveParameters. Residuals become what they were when the step began, to the
  // bit: their part of the gradients that were sent is not lost. kFailedPrecondition: also if there
  // are residuals and ReducerOptions::may_skip is not set.
  Status SkipStep();
  // Returns true if GiveParameters was called and all shards of the bucket have come.
  bool IsGathered(uint32_t bucket) const;
  // Returns true if all buckets are gathered.
  bool IsDone() const;

  // Totals since the reducer was made.
  const ByteCounts& sent() const { return sent_; }
  const ByteCounts& received() const { return received_; }
  // Returns this step's counts so far, for the shards that this replica owns.
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
  bool SelectsOwn() const;
  Status SelectOwn(uint32_t bucket);
  Status CopyResiduals(uint32_t bucket, uint32_t owner, const Residuals& from, const Residuals& to);
  bool IsLateUnion(const MessageHeader& header) const;
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
  Residuals residuals_before_;  // as the step began; empty unless ReducerOptions::may_skip
  std::vector<ParameterMemory> memory_;
  std::vector<BucketState> buckets_;
  std::optional<uint64_t> step_, skipped_;          // of `skipped_`: the last one
  std::map<HeldKey, std::vector<std::byte>> held_;  // messages of the next step
  ByteCounts sent_, received_;
};

}  // namespace longhaul::replicas
