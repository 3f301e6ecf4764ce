#include "transport/replicas/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "codec/rounding.h"
#include "transport/replicas/dense.h"
#include "transport/replicas/host_arithmetic.h"

namespace longhaul::replicas {
namespace {

// Mixed into the seed, so that gradients of replicas do not share random numbers with tensors of
// boundaries.
constexpr uint64_t kSeedOfReplicas = 0x7265706c69636173;  // "replicas"

Status OutOfOrder(std::string_view call, std::string_view why) {
  return FailedPrecondition("{}: {}", call, why);
}

}  // namespace

void ByteCounts::Add(MessageKind kind, uint64_t bytes, uint64_t of_asked_for) {
  asked_for += of_asked_for;
  bytes -= of_asked_for;
  switch (kind) {
    case MessageKind::kGradients:
      gradients += bytes;
      break;
    case MessageKind::kIndex:
    case MessageKind::kUnion:
      index += bytes;
      break;
    case MessageKind::kSketch:
      sketch += bytes;
      break;
    case MessageKind::kParameters:
      parameters += bytes;
      break;
  }
}

StatusOr<std::unique_ptr<Reducer>> Reducer::Create(Layout layout, ReducerOptions options,
                                                   Outbox* outbox) {
  LH_CHECK(outbox != nullptr, "a reducer needs an outbox");
  const uint32_t replicas = layout.options().replicas;
  if (options.replica >= replicas) {
    return InvalidArgument("replica {} is not one of {}", options.replica, replicas);
  }
  auto reducer = std::unique_ptr<Reducer>(new Reducer(std::move(layout), options, outbox));
  LH_RETURN_IF_ERROR(reducer->MakeNumbers());
  return reducer;
}

Reducer::Reducer(Layout layout, ReducerOptions options, Outbox* outbox)
    : layout_(std::move(layout)),
      options_(options),
      outbox_(outbox),
      own_arithmetic_(options_.arithmetic == nullptr ? std::make_unique<HostArithmetic>()
                                                     : nullptr),
      arithmetic_(own_arithmetic_ ? own_arithmetic_.get() : options_.arithmetic) {
  const uint32_t replicas = layout_.options().replicas;
  buckets_.resize(layout_.buckets().size());
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    if (!ShardOf(b, options_.replica).sparse.empty()) {
      buckets_[b].sum.emplace(replicas);
    }
    buckets_[b].contributions.resize(replicas);
    Reset(b);
  }
}

Status Reducer::MakeNumbers() {
  const GradientOptions& gradients = layout_.options().gradients;
  residuals_.resize(layout_.parameters().size());
  for (uint32_t k = 0; k < residuals_.size(); ++k) {
    // What encoding or selection leaves out is kept and added in the next step.
    const bool stays = gradients.feedback || layout_.IsSparse(k);
    if (!stays || layout_.options().replicas == 1) continue;
    LH_ASSIGN_OR_RETURN(residuals_[k], arithmetic_->Make(layout_.parameters()[k].elements));
    if (!options_.may_skip) continue;
    residuals_before_.resize(residuals_.size());
    LH_ASSIGN_OR_RETURN(residuals_before_[k], arithmetic_->Make(layout_.parameters()[k].elements));
  }
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    BucketState& bucket = buckets_[b];
    for (const Piece& piece : ShardOf(b, options_.replica).pieces()) {
      LH_ASSIGN_OR_RETURN(Numbers gradient, arithmetic_->Make(piece.count));
      LH_ASSIGN_OR_RETURN(Numbers master, arithmetic_->Make(piece.count));
      bucket.own.push_back({piece, gradient.span, master.span});
      bucket.numbers.push_back(std::move(gradient));
      bucket.numbers.push_back(std::move(master));
    }
  }
  return absl::OkStatus();
}

Status Reducer::BeginMasters(std::span<const std::span<const float>> values) {
  if (values.size() != layout_.parameters().size()) {
    return InvalidArgument("expected the values of {} parameters, got {}",
                           layout_.parameters().size(), values.size());
  }
  for (size_t k = 0; k < values.size(); ++k) {
    if (values[k].size() != layout_.parameters()[k].elements) {
      return InvalidArgument("parameter '{}' has {} elements, got {} values",
                             layout_.parameters()[k].name, layout_.parameters()[k].elements,
                             values[k].size());
    }
  }
  for (const BucketState& bucket : buckets_) {
    for (const OwnPiece& own : bucket.own) {
      LH_RETURN_IF_ERROR(
          arithmetic_->Copy(Part(values[own.piece.parameter], own.piece), own.master));
    }
  }
  return absl::OkStatus();
}

std::vector<StateTensor> Reducer::State() {
  std::vector<StateTensor> state;
  for (BucketState& bucket : buckets_) {
    for (const OwnPiece& own : bucket.own) {
      state.push_back({layout_.parameters()[own.piece.parameter].name + ".master", own.piece.first,
                       own.master});
    }
  }
  for (size_t k = 0; k < residuals_.size(); ++k) {
    if (residuals_[k].span.empty()) continue;
    state.push_back({layout_.parameters()[k].name + ".residual", 0, residuals_[k].span});
  }
  return state;
}

std::span<const OwnPiece> Reducer::OwnDense(uint32_t bucket) const {
  return Own(bucket).first(ShardOf(bucket, options_.replica).dense.size());
}
std::span<const OwnPiece> Reducer::OwnSparse(uint32_t bucket) const {
  return Own(bucket).subspan(ShardOf(bucket, options_.replica).dense.size());
}

void Reducer::Reset(uint32_t bucket) {
  const uint32_t replicas = layout_.options().replicas;
  BucketState& state = buckets_[bucket];
  state.given = state.reduced = state.published = false;
  state.dense.assign(replicas, {});
  state.dense_missing = ShardOf(bucket, options_.replica).dense.empty() ? 0 : replicas - 1;
  if (state.sum) state.sum->Clear();
  state.union_came.assign(replicas, false);
  state.gathered.assign(replicas, false);
  for (uint32_t owner = 0; owner < replicas; ++owner) {
    // Nobody sends an empty shard.
    state.gathered[owner] = ShardOf(bucket, owner).empty();
  }
}

Status Reducer::Begin(uint64_t step, std::vector<ParameterMemory> memory) {
  if (step_ && (!IsDone() || step != *step_ + 1)) {
    return OutOfOrder("Begin", fmt::format("step {} comes after step {} is done, got step {}",
                                           *step_ + 1, *step_, step));
  }
  if (memory.size() != layout_.parameters().size()) {
    return OutOfOrder("Begin", fmt::format("expected memory of {} parameters, got {}",
                                           layout_.parameters().size(), memory.size()));
  }
  for (size_t k = 0; k < memory.size(); ++k) {
    const uint64_t elements = layout_.parameters()[k].elements;
    if (memory[k].gradient.size() != elements || memory[k].value.size() != elements) {
      return OutOfOrder(
          "Begin", fmt::format("parameter '{}' has {} elements, got {} gradients and {} values",
                               layout_.parameters()[k].name, elements, memory[k].gradient.size(),
                               memory[k].value.size()));
    }
  }
  memory_ = std::move(memory);
  step_ = step;
  for (uint32_t b = 0; b < buckets_.size(); ++b) Reset(b);
  // Messages of this step that came before it began here: other replicas may be ahead.
  auto held = std::exchange(held_, {});
  for (auto& [key, message] : held) {
    LH_ASSIGN_OR_RETURN(const MessageHeader header, ParseMessage(message));
    const uint32_t from = std::get<0>(key);
    LH_RETURN_IF_ERROR(
        Annotate(Handle(from, header, std::move(message)), fmt::format("replica {}", from)));
  }
  return absl::OkStatus();
}

Status Reducer::GiveGradients(uint32_t bucket) {
  if (!step_ || bucket >= buckets_.size() || buckets_[bucket].given) {
    return OutOfOrder("GiveGradients",
                      fmt::format("bucket {} is given once in a step that has begun", bucket));
  }
  buckets_[bucket].given = true;
  // Own shards last: the others' bytes are on their way by then.
  for (uint32_t k = 1; k < layout_.options().replicas; ++k) {
    const uint32_t owner = (options_.replica + k) % layout_.options().replicas;
    LH_RETURN_IF_ERROR(Contribute(bucket, owner));
  }
  if (SelectsOwn()) LH_RETURN_IF_ERROR(SelectOwn(bucket));
  return Advance(bucket);
}

// One replica alone sends nothing, so its sums are dense in any case.
bool Reducer::SelectsOwn() const {
  return layout_.options().gradients.owner_is_sparse && layout_.options().replicas > 1;
}

Status Reducer::SelectOwn(uint32_t bucket) {
  const uint32_t own = options_.replica;
  const Shard& shard = ShardOf(bucket, own);
  if (shard.sparse.empty()) return absl::OkStatus();
  LH_RETURN_IF_ERROR(CopyResiduals(bucket, own, residuals_, residuals_before_));
  SparseContribution& contribution = buckets_[bucket].contributions[own];
  LH_RETURN_IF_ERROR(
      contribution.Select(shard, layout_.options().gradients.keep, memory_, residuals_, arithmetic_)
          .status());
  return contribution.KeepOwn(shard, residuals_, arithmetic_);
}

// Copies the residuals of a shard; does nothing if steps are never skipped.
Status Reducer::CopyResiduals(uint32_t bucket, uint32_t owner, const Residuals& from,
                              const Residuals& to) {
  if (residuals_before_.empty()) return absl::OkStatus();
  for (const Piece& piece : ShardOf(bucket, owner).pieces()) {
    if (residuals_[piece.parameter].span.empty()) continue;
    LH_RETURN_IF_ERROR(arithmetic_->Copy(Part(from[piece.parameter].span, piece),
                                         Part(to[piece.parameter].span, piece)));
  }
  return absl::OkStatus();
}

Status Reducer::Contribute(uint32_t bucket, uint32_t owner) {
  const Shard& shard = ShardOf(bucket, owner);
  const GradientOptions& gradients = layout_.options().gradients;
  LH_RETURN_IF_ERROR(CopyResiduals(bucket, owner, residuals_, residuals_before_));
  if (!shard.sparse.empty()) {
    LH_ASSIGN_OR_RETURN(const IndexPayload index,
                        buckets_[bucket].contributions[owner].Select(shard, gradients.keep, memory_,
                                                                     residuals_, arithmetic_));
    auto message = New(MessageKind::kIndex, bucket, owner, IndexBytes(shard.positions));
    WriteIndex(index, PayloadOf(std::span(message)));
    LH_RETURN_IF_ERROR(Send(owner, MessageKind::kIndex, std::move(message)));
  }
  if (!shard.dense.empty()) {
    const GradientForm form = DenseForm(gradients);
    auto message = New(MessageKind::kGradients, bucket, owner, GradientBytes(form, shard.dense));
    const codec::RoundingNoise noise({.seed = options_.seed ^ kSeedOfReplicas,
                                      .step = Step(*step_),
                                      .replica = options_.replica,
                                      .edge = EdgeId(bucket),
                                      .direction = Direction::kBackward,
                                      .microbatch = Microbatch(owner)});
    LH_RETURN_IF_ERROR(arithmetic_->EncodeGradients(form, shard.dense, memory_, noise, residuals_,
                                                    PayloadOf(std::span(message))));
    LH_RETURN_IF_ERROR(Send(owner, MessageKind::kGradients, std::move(message)));
  }
  return absl::OkStatus();
}

// Reduces the own shard of `bucket` once its gradients and all replicas' contributions are there.
Status Reducer::Advance(uint32_t bucket) {
  BucketState& state = buckets_[bucket];
  if (!state.given || state.reduced || state.dense_missing > 0) return absl::OkStatus();
  if (state.sum) {
    const bool alone = layout_.options().replicas == 1;
    // Without other replicas no index comes that would make the plan.
    if (alone) state.sum->Plan(0);
    if (!state.sum->IsComplete()) return absl::OkStatus();
    const SparseContribution* selected =
        SelectsOwn() ? &state.contributions[options_.replica] : nullptr;
    LH_RETURN_IF_ERROR(state.sum->Reduce(OwnSparse(bucket), memory_, selected, arithmetic_));
  }
  std::vector<std::span<const std::byte>> payloads;
  for (const std::vector<std::byte>& message : state.dense) {
    payloads.push_back(message.empty() ? std::span<const std::byte>()
                                       : PayloadOf(std::span<const std::byte>(message)));
  }
  LH_RETURN_IF_ERROR(arithmetic_->ReduceGradients(DenseForm(layout_.options().gradients),
                                                  OwnDense(bucket), memory_, payloads));
  // The messages are as large as the shard: their memory goes at once.
  state.dense.assign(payloads.size(), {});
  state.reduced = true;
  return absl::OkStatus();
}

Status Reducer::GiveParameters(uint32_t bucket) {
  if (bucket >= buckets_.size() || !buckets_[bucket].reduced || buckets_[bucket].published) {
    return OutOfOrder(
        "GiveParameters",
        fmt::format("bucket {} is given once in a step, after it is reduced", bucket));
  }
  BucketState& state = buckets_[bucket];
  state.published = true;
  const uint32_t own = options_.replica;
  if (state.own.empty()) return absl::OkStatus();
  const ParameterForm form = layout_.options().parameters;
  auto message = New(MessageKind::kParameters, bucket, own,
                     ParameterBytes(form, ShardOf(bucket, own).pieces()));
  LH_RETURN_IF_ERROR(
      arithmetic_->EncodeParameters(form, state.own, memory_, PayloadOf(std::span(message))));
  state.gathered[own] = true;
  const uint32_t replicas = layout_.options().replicas;
  for (uint32_t k = 1; k < replicas; ++k) {
    LH_RETURN_IF_ERROR(Send((own + k) % replicas, MessageKind::kParameters, message));
  }
  return absl::OkStatus();
}

Status Reducer::SkipStep() {
  for (const BucketState& bucket : buckets_) {
    if (step_ && bucket.reduced && !bucket.published) continue;
    return OutOfOrder("SkipStep", "a step is skipped when it is reduced and nothing is published");
  }
  const bool has_residuals =
      std::ranges::any_of(residuals_, [](const Numbers& some) { return !some.span.empty(); });
  if (has_residuals && residuals_before_.empty()) {
    return OutOfOrder("SkipStep", "residuals can be given back with ReducerOptions::may_skip only");
  }
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    for (uint32_t owner = 0; owner < layout_.options().replicas; ++owner) {
      if (owner == options_.replica && !SelectsOwn()) continue;
      LH_RETURN_IF_ERROR(CopyResiduals(b, owner, residuals_before_, residuals_));
    }
    buckets_[b].published = true;
    buckets_[b].gathered.assign(buckets_[b].gathered.size(), true);
  }
  skipped_ = step_;
  return absl::OkStatus();
}

bool Reducer::IsGathered(uint32_t bucket) const {
  const BucketState& state = buckets_[bucket];
  return state.published &&
         std::all_of(state.gathered.begin(), state.gathered.end(), [](bool came) { return came; });
}

bool Reducer::IsDone() const {
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    if (!IsGathered(b)) return false;
  }
  return true;
}

SparseCounts Reducer::sparse_counts() const {
  SparseCounts all;
  for (const BucketState& bucket : buckets_) {
    if (!bucket.sum) continue;
    all.kept_by_any += bucket.sum->counts().kept_by_any;
    all.asked_for += bucket.sum->counts().asked_for;
    all.cells += bucket.sum->counts().cells;
  }
  return all;
}

std::vector<std::byte> Reducer::New(MessageKind kind, uint32_t bucket, uint32_t owner,
                                    uint64_t bytes) const {
  return NewMessage({.kind = kind,
                     .step = *step_,
                     .bucket = bucket,
                     .owner = owner,
                     .fingerprint = layout_.fingerprint()},
                    bytes);
}

Status Reducer::Send(uint32_t to, MessageKind kind, std::vector<std::byte> message,
                     uint64_t asked_for) {
  sent_.Add(kind, message.size(), asked_for);
  return Annotate(outbox_->Send(to, kind, std::move(message)), fmt::format("to replica {}", to));
}

}  // namespace longhaul::replicas
