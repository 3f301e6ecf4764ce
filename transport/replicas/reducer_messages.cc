// How a Reducer checks and takes messages of the other replicas.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/replicas/dense.h"
#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

Status Reducer::CheckHeader(uint32_t from, const MessageHeader& header) const {
  const uint32_t replicas = layout_.options().replicas;
  if (from >= replicas || from == options_.replica) {
    return InvalidArgument("expected another one of {} replicas", replicas);
  }
  if (header.fingerprint != layout_.fingerprint()) {
    return absl::InvalidArgumentError(
        "its layout is another one: expected the same parameters, gradients, parameters' form and "
        "number of replicas; run the same assignment on all replicas");
  }
  if (header.bucket >= buckets_.size() || header.owner >= replicas) {
    return InvalidArgument("expected a bucket below {} and an owner below {}, got {} and {}",
                           buckets_.size(), replicas, header.bucket, header.owner);
  }
  bool owners = header.owner == from;
  if (header.kind == MessageKind::kGradients || header.kind == MessageKind::kIndex ||
      header.kind == MessageKind::kSketch) {
    owners = header.owner == options_.replica;
  }
  if (!owners) {
    return InvalidArgument("{} of the shard of {} do not come from there", ToString(header.kind),
                           header.owner);
  }
  return absl::OkStatus();
}

Status Reducer::Take(uint32_t from, std::vector<std::byte> message) {
  const std::string who = fmt::format("replica {}", from);
  const auto header = ParseMessage(message);
  LH_RETURN_IF_ERROR(Annotate(header.status(), who));
  LH_RETURN_IF_ERROR(Annotate(CheckHeader(from, *header), who));
  if (IsLateUnion(*header)) return absl::OkStatus();
  if (step_ && header->step == *step_) {
    return Annotate(Handle(from, *header, std::move(message)), who);
  }
  return Annotate(Hold(from, *header, std::move(message)), who);
}

// An owner reduces a shard with a gradient that is not finite as soon as it has the indices. So the
// union that says so may come after all replicas have agreed to skip the step.
bool Reducer::IsLateUnion(const MessageHeader& header) const {
  return header.kind == MessageKind::kUnion && skipped_ == header.step && step_ > skipped_;
}

// Keeps a message of the next step: a replica that has all parameters of this step may be there
// already.
Status Reducer::Hold(uint32_t from, const MessageHeader& header, std::vector<std::byte> message) {
  if (step_ && header.step != *step_ + 1) {
    return InvalidArgument("expected {} of step {} or {}, got step {}", ToString(header.kind),
                           *step_, *step_ + 1, header.step);
  }
  // Only these two are sent before this replica has sent anything in that step.
  if (header.kind != MessageKind::kGradients && header.kind != MessageKind::kIndex) {
    return InvalidArgument("{} of step {} came before this replica's gradients",
                           ToString(header.kind), header.step);
  }
  const Shard& shard = ShardOf(header.bucket, header.owner);
  const uint64_t most = std::max(GradientBytes(DenseForm(layout_.options().gradients), shard.dense),
                                 IndexBytes(shard.positions));
  if (message.size() > kMessageHeaderBytes + most) {
    return InvalidArgument("{}: expected at most {} bytes, got {}", ToString(header.kind),
                           kMessageHeaderBytes + most, message.size());
  }
  const HeldKey key{from, header.kind, header.bucket, header.owner};
  if (!held_.emplace(key, std::move(message)).second) {
    return InvalidArgument("{} of bucket {} came twice", ToString(header.kind), header.bucket);
  }
  return absl::OkStatus();
}

Status Reducer::Handle(uint32_t from, const MessageHeader& header, std::vector<std::byte> message) {
  if (header.step != *step_) {
    return InvalidArgument("expected {} of step {}, got step {}", ToString(header.kind), *step_,
                           header.step);
  }
  // Taken here: the message is moved away below.
  const uint64_t bytes = message.size();
  const auto payload = PayloadOf(std::span<const std::byte>(message));
  uint64_t asked_for = 0;
  Status status;
  switch (header.kind) {
    case MessageKind::kGradients:
      status = TakeGradients(from, header, std::move(message));
      break;
    case MessageKind::kIndex:
      status = TakeIndex(from, header, payload);
      break;
    case MessageKind::kUnion:
      status = TakeUnion(from, header, payload);
      asked_for = buckets_[header.bucket].contributions[header.owner].asked_bytes();
      break;
    case MessageKind::kSketch:
      status = TakeSketch(from, header, payload);
      asked_for =
          4 * (buckets_[header.bucket].sum ? buckets_[header.bucket].sum->counts().asked_for : 0);
      break;
    case MessageKind::kParameters:
      status = TakeParameters(from, header, payload);
      break;
  }
  LH_RETURN_IF_ERROR(Annotate(status, fmt::format("bucket {}", header.bucket)));
  received_.Add(header.kind, bytes, asked_for);
  return absl::OkStatus();
}

Status Reducer::TakeGradients(uint32_t from, const MessageHeader& header,
                              std::vector<std::byte> message) {
  BucketState& state = buckets_[header.bucket];
  const uint64_t expected = GradientBytes(DenseForm(layout_.options().gradients),
                                          ShardOf(header.bucket, options_.replica).dense);
  if (message.size() - kMessageHeaderBytes != expected || expected == 0) {
    return InvalidArgument("gradients: expected {} bytes, got {}", expected,
                           message.size() - kMessageHeaderBytes);
  }
  if (state.reduced || !state.dense[from].empty()) {
    return absl::InvalidArgumentError("gradients came twice");
  }
  state.dense[from] = std::move(message);
  --state.dense_missing;
  return Advance(header.bucket);
}

Status Reducer::TakeIndex(uint32_t from, const MessageHeader& header,
                          std::span<const std::byte> payload) {
  BucketState& state = buckets_[header.bucket];
  if (!state.sum) return absl::InvalidArgumentError("index: this shard has no sparse parameters");
  LH_RETURN_IF_ERROR(state.sum->AddIndex(from, payload, ShardOf(header.bucket, options_.replica),
                                         layout_.options().gradients.keep));
  // Replicas learn the union of positions with the last index; their numbers come after that.
  if (!state.sum->HasIndices()) return absl::OkStatus();
  state.sum->Plan(static_cast<uint32_t>(*step_));
  for (uint32_t k = 1; k < layout_.options().replicas; ++k) {
    const uint32_t to = (options_.replica + k) % layout_.options().replicas;
    const UnionPayload all = state.sum->UnionFor(to);
    auto message = New(MessageKind::kUnion, header.bucket, options_.replica, UnionBytes(all));
    WriteUnion(all, PayloadOf(std::span(message)));
    LH_RETURN_IF_ERROR(Send(to, MessageKind::kUnion, std::move(message), 4 * all.left_out.size()));
  }
  return Advance(header.bucket);
}

Status Reducer::TakeUnion(uint32_t from, const MessageHeader& header,
                          std::span<const std::byte> payload) {
  BucketState& state = buckets_[header.bucket];
  const Shard& shard = ShardOf(header.bucket, from);
  if (!state.given || shard.sparse.empty() || state.union_came[from]) {
    return absl::InvalidArgumentError("union: expected one, as an answer to this replica's index");
  }
  state.union_came[from] = true;
  SparseContribution& contribution = state.contributions[from];
  LH_ASSIGN_OR_RETURN(const std::vector<std::byte> sketch,
                      contribution.Answer(shard, payload, residuals_, arithmetic_));
  if (sketch.empty()) return absl::OkStatus();
  auto message = New(MessageKind::kSketch, header.bucket, from, sketch.size());
  std::copy(sketch.begin(), sketch.end(), PayloadOf(std::span(message)).begin());
  return Send(from, MessageKind::kSketch, std::move(message), contribution.asked_bytes());
}

Status Reducer::TakeSketch(uint32_t from, const MessageHeader& header,
                           std::span<const std::byte> payload) {
  BucketState& state = buckets_[header.bucket];
  if (!state.sum) return absl::InvalidArgumentError("sketch: this shard has no sparse parameters");
  LH_RETURN_IF_ERROR(state.sum->AddSketch(from, payload));
  return Advance(header.bucket);
}

Status Reducer::TakeParameters(uint32_t from, const MessageHeader& header,
                               std::span<const std::byte> payload) {
  BucketState& state = buckets_[header.bucket];
  const std::vector<Piece> pieces = ShardOf(header.bucket, header.owner).pieces();
  const ParameterForm form = layout_.options().parameters;
  const uint64_t expected = ParameterBytes(form, pieces);
  if (payload.size() != expected) {
    return InvalidArgument("parameters: expected {} bytes, got {}", expected, payload.size());
  }
  if (!state.given || state.gathered[header.owner]) {
    return InvalidArgument(
        "parameters of {} from {}: expected them once, after this replica's gradients",
        header.owner, from);
  }
  state.gathered[header.owner] = true;
  return arithmetic_->DecodeParameters(form, pieces, payload, memory_);
}

}  // namespace longhaul::replicas
