#include "worker/pipeline/replica_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "run/model/family.h"
#include "transport/replicas/outer_step.h"
#include "transport/replicas/parameters.h"

namespace longhaul::worker {
namespace {

using replicas::OwnPiece;
using replicas::ParameterForm;
using replicas::ReplicatedParameter;

std::vector<model::PlacedParameter> ParametersOfStage(const StageOptions& options) {
  return model::ParametersOf(options.model, options.vocabulary_rows(),
                             {.first_layer = options.first_layer,
                              .layers = options.layers,
                              .embedding = options.first,
                              .head = options.last});
}

double SumOfSquares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

constexpr std::string_view kAnchor = ".anchor", kOuterMomentum = ".outer_momentum",
                           kLocal = ".local";

class Exchange final : public ReplicaExchange, public replicas::Outbox {
 public:
  Exchange(Stage* stage, const StageOptions& options, ParameterForm form,
           ReplicaExchange::Send send)
      : stage_(stage), options_(options), form_(form), send_(std::move(send)) {}

  bool steps_together() const override { return !outer_; }
  bool IsDue(Step step) const override { return !outer_ || outer_->IsDue(step.value()); }
  Status BeginMerge(Step step) override;
  bool MergeIsDue(Step step) const override {
    return step.value() == options_.train.steps || outer_->MergeIsDue(step.value());
  }
  StatusOr<bool> IsMerged() override;
  bool AwaitsMerge() const override { return awaits_merge_; }

  Status Prepare(const ReplicasSpec& spec, uint32_t replica, const StageSnapshot* begun_from);

  Status BeginBeside(Step step) override;
  absl::Duration TakeTimeBeside() override {
    return std::exchange(time_beside_, absl::ZeroDuration());
  }
  Status Begin(Step step) override;
  Status Take(ReplicaSaid said) override {
    LH_RETURN_IF_ERROR(reducer_->Take(said.replica, std::move(said.message)));
    return merges_ ? StepReduced() : absl::OkStatus();
  }
  bool IsReduced() const override;
  SquaredNorm AddSquaredNorm(double sum) const override;
  Status StepOwn(Step step, double learning_rate, double gradient_scale) override;
  Status Skip(Step step) override;
  bool IsDone() const override { return reducer_->IsDone(); }
  Status End(Step step) override { return stage_->EndSharedStep(step); }
  Status AddState(StageSnapshot* snapshot) override;

  // replicas::Outbox
  Status Send(uint32_t to, replicas::MessageKind, std::vector<std::byte> message) override {
    send_(to, step_, std::move(message));
    return absl::OkStatus();
  }

 private:
  uint32_t buckets() const { return static_cast<uint32_t>(reducer_->layout().buckets().size()); }
  // What the stage holds, in the order of the layout. kInternal where its descriptor says
  // otherwise.
  StatusOr<std::vector<SharedParameter>> Shared();
  Status MakeOptimizer(const std::vector<SharedParameter>& shared);
  Status BeginReducer(Step step);
  // Gives what a stage has said to be final: gradients of its blocks from `block` on.
  Status GiveFrom(uint32_t block);
  Status Restore(const StageSnapshot& snapshot);
  // Of what the reducer remembers. Of residuals each of so many replicas has its own.
  std::string ArrayName(const std::string& state) const {
    // A stage alone takes masters for its parameters, and anchors for what they are.
    if (outer_ && state.ends_with(kMaster)) {
      return state.substr(0, state.size() - kMaster.size()) + std::string(kAnchor);
    }
    return state.ends_with(kResidual) ? OwnName(state) : state;
  }
  std::string OwnName(const std::string& state) const {
    return fmt::format("{}-{}-of-{}", state, replica_, reducer_->layout().options().replicas);
  }
  // Takes the outer step of what has been reduced, and sends it to all.
  Status StepReduced();
  // Of replicas that are about to merge.
  Status RestoreLocals(const ArrayPieces& pieces);
  void AddLocals(StageSnapshot* snapshot);
  const std::string& NameOf(const replicas::Piece& piece) const {
    return reducer_->layout().parameters()[piece.parameter].name;
  }
  void AddMomenta(std::vector<NamedArray>* arrays) {
    for (uint32_t b = 0; b < buckets(); ++b) {
      for (size_t k = 0; k < reducer_->Own(b).size(); ++k) {
        const replicas::Piece& piece = reducer_->Own(b)[k].piece;
        const std::vector<float>& momentum = outer_->momenta(b)[k];
        arrays->push_back({PieceName(NameOf(piece), piece.first, kOuterMomentum),
                           {static_cast<int64_t>(momentum.size())},
                           momentum});
      }
    }
  }
  // Parameters whose numbers another stage counts.
  bool CountsInNorm(const OwnPiece& piece) const {
    return !counted_elsewhere_[piece.piece.parameter];
  }

  Stage* const stage_;
  const StageOptions options_;
  const ParameterForm form_;
  const ReplicaExchange::Send send_;
  uint32_t replica_ = 0, steps_apart_ = 1;
  std::unique_ptr<replicas::Reducer> reducer_;
  std::unique_ptr<ShardOptimizer> optimizer_;  // of replicas that take steps together
  std::optional<replicas::OuterStep> outer_;   // of those that train apart
  bool merges_ = false, awaits_merge_ = false;
  std::vector<bool> stepped_;  // by bucket, of the merge under way
  std::vector<bool> counted_elsewhere_;
  std::vector<uint32_t> final_with_;  // replicas::FinalWith
  // Of the step whose last backward is under way: who has been given, from the last bucket on.
  std::optional<uint32_t> buckets_left_;
  Status beside_;
  absl::Duration time_beside_;
  Step step_{0};
};

StatusOr<std::vector<SharedParameter>> Exchange::Shared() {
  LH_ASSIGN_OR_RETURN(std::vector<SharedParameter> all, stage_->SharedParameters());
  std::map<std::string, SharedParameter*> by_name;
  for (SharedParameter& one : all) by_name[one.name] = &one;
  std::vector<SharedParameter> ordered;
  for (const ReplicatedParameter& parameter : reducer_->layout().parameters()) {
    const auto found = by_name.find(parameter.name);
    if (found == by_name.end() || found->second->value.size() != parameter.elements) {
      return absl::InternalError(
          fmt::format("replicas exchange {} with {} elements, which the stage does not hold",
                      parameter.name, parameter.elements));
    }
    ordered.push_back(std::move(*found->second));
  }
  LH_CHECK(ordered.size() == all.size(), "the stage has {} parameters, replicas exchange {}",
           all.size(), ordered.size());
  return ordered;
}

Status Exchange::Prepare(const ReplicasSpec& spec, uint32_t replica,
                         const StageSnapshot* begun_from) {
  replica_ = replica;
  steps_apart_ = spec.steps_apart();
  const std::vector<model::PlacedParameter> parameters = ParametersOfStage(options_);
  LH_ASSIGN_OR_RETURN(
      replicas::Layout layout,
      replicas::Layout::Make(
          replicas::ReplicatedParameters(parameters,
                                         options_.train.optimizer.kind == OptimizerKind::kMuon),
          {.replicas = spec.count, .gradients = spec.gradients, .parameters = spec.parameters}));
  LH_ASSIGN_OR_RETURN(
      reducer_,
      replicas::Reducer::Create(
          std::move(layout), {.replica = replica, .seed = options_.train.seed, .ring = {}}, this));
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<std::span<const float>> values;
  for (const SharedParameter& one : shared) {
    values.emplace_back(one.value);
    counted_elsewhere_.push_back(one.counted_elsewhere);
  }
  LH_RETURN_IF_ERROR(reducer_->BeginMasters(values));
  final_with_ = replicas::FinalWith(reducer_->layout(), parameters, options_.first_layer);
  if (spec.trains_apart()) {
    outer_.emplace(spec.gradients.local, values);
    for (uint32_t b = 0; b < buckets(); ++b) outer_->PrepareBucket(b, reducer_->Own(b));
  } else {
    LH_RETURN_IF_ERROR(MakeOptimizer(shared));
  }
  return begun_from == nullptr ? absl::OkStatus() : Restore(*begun_from);
}

Status Exchange::MakeOptimizer(const std::vector<SharedParameter>& shared) {
  if (const auto& replay = options_.replay) {
    optimizer_ =
        ShardOptimizer::OfReplay(replay->optimizer * options_.layers / options_.model.layers /
                                 reducer_->layout().options().replicas);
    return absl::OkStatus();
  }
  std::vector<ParameterShard> shards;
  for (uint32_t b = 0; b < buckets(); ++b) {
    for (OwnPiece& own : reducer_->Own(b)) {
      const SharedParameter& whole = shared[own.piece.parameter];
      shards.push_back({.name = whole.name,
                        .shape = whole.shape,
                        .decays = whole.decays,
                        .block_matrices = whole.block_matrices,
                        .first = own.piece.first,
                        .gradient = own.gradient,
                        .value = own.master});
    }
  }
  // The threads of all ranks: these wait meanwhile.
  const auto ranks = static_cast<uint32_t>(std::max<size_t>(options_.ranks.size(), 1));
  LH_ASSIGN_OR_RETURN(optimizer_, ShardOptimizer::Create(options_.train, options_.threads * ranks,
                                                         std::move(shards)));
  return absl::OkStatus();
}

// Residuals of a run with another number of replicas are not there: they are nothing but what
// rounding lost.
Status Exchange::Restore(const StageSnapshot& snapshot) {
  const ArrayPieces pieces(snapshot.moments);
  for (const replicas::StateTensor& state : reducer_->State()) {
    const std::string name = ArrayName(state.name);
    if (!pieces.Has(name)) continue;
    LH_RETURN_IF_ERROR(pieces.Read(name, state.first, state.values));
  }
  if (!outer_) return optimizer_->Restore(pieces);
  for (uint32_t b = 0; b < buckets(); ++b) {
    for (size_t k = 0; k < reducer_->Own(b).size(); ++k) {
      const replicas::Piece& piece = reducer_->Own(b)[k].piece;
      const std::string name = NameOf(piece) + std::string(kOuterMomentum);
      if (!pieces.Has(name)) continue;  // it was trained otherwise before
      LH_RETURN_IF_ERROR(pieces.Read(name, piece.first, outer_->momenta(b)[k]));
    }
  }
  return RestoreLocals(pieces);
}

Status Exchange::RestoreLocals(const ArrayPieces& pieces) {
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  for (const SharedParameter& one : shared) {
    const std::string name = OwnName(one.name + std::string(kLocal));
    if (!pieces.Has(name)) continue;
    awaits_merge_ = true;
    LH_RETURN_IF_ERROR(pieces.Read(name, 0, one.value));
  }
  return awaits_merge_ ? stage_->TakeSharedValues() : absl::OkStatus();
}

Status Exchange::BeginMerge(Step step) {
  step_ = step;
  awaits_merge_ = false;
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<std::span<const float>> locals;
  for (const SharedParameter& one : shared) locals.emplace_back(one.value);
  outer_->TakeDifferences(locals);
  stepped_.assign(buckets(), false);
  merges_ = true;
  LH_RETURN_IF_ERROR(reducer_->Begin(step.value() / steps_apart_, outer_->memory()));
  for (uint32_t b = 0; b < buckets(); ++b) LH_RETURN_IF_ERROR(reducer_->GiveGradients(b));
  return StepReduced();
}

Status Exchange::StepReduced() {
  for (uint32_t b = 0; b < buckets(); ++b) {
    if (stepped_[b] || !reducer_->IsReduced(b)) continue;
    stepped_[b] = true;
    outer_->StepMasters(b, reducer_->Own(b));
    LH_RETURN_IF_ERROR(reducer_->GiveParameters(b));
  }
  return absl::OkStatus();
}

StatusOr<bool> Exchange::IsMerged() {
  if (!merges_) return true;
  if (!reducer_->IsDone()) return false;
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<std::span<float>> values;
  for (const SharedParameter& one : shared) values.push_back(one.value);
  outer_->Merge(values);
  merges_ = false;
  LH_RETURN_IF_ERROR(stage_->TakeSharedValues());
  return true;
}

Status Exchange::BeginBeside(Step step) {
  const auto timed = [this](const auto& work) {
    const MonoTime begin = Now();
    Status status = work();
    time_beside_ += longhaul::operator-(Now(), begin);
    return status;
  };
  const bool tells = stage_->TellWhatIsFinal([this, timed](uint32_t block) {
    if (beside_.ok()) beside_ = timed([&] { return GiveFrom(block); });
  });
  if (!tells) return absl::OkStatus();
  buckets_left_ = buckets();
  return timed([&] { return BeginReducer(step); });
}

Status Exchange::BeginReducer(Step step) {
  step_ = step;
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<replicas::ParameterMemory> memory;
  for (const SharedParameter& one : shared) memory.push_back({one.gradient, one.value});
  return reducer_->Begin(step.value(), std::move(memory));
}

Status Exchange::GiveFrom(uint32_t block) {
  for (uint32_t& left = *buckets_left_; left > 0 && final_with_[left - 1] >= block; --left) {
    LH_RETURN_IF_ERROR(reducer_->GiveGradients(left - 1));
  }
  return absl::OkStatus();
}

Status Exchange::Begin(Step step) {
  if (!buckets_left_) {
    LH_RETURN_IF_ERROR(BeginReducer(step));
    buckets_left_ = buckets();
  }
  LH_RETURN_IF_ERROR(std::exchange(beside_, absl::OkStatus()));
  LH_RETURN_IF_ERROR(GiveFrom(0));
  buckets_left_.reset();
  return absl::OkStatus();
}

bool Exchange::IsReduced() const {
  for (uint32_t b = 0; b < buckets(); ++b) {
    if (!reducer_->IsReduced(b)) return false;
  }
  return true;
}

SquaredNorm Exchange::AddSquaredNorm(double sum) const {
  SquaredNorm norm{.sum = sum};
  for (uint32_t b = buckets(); b-- > 0;) {
    for (const OwnPiece& own : reducer_->Own(b)) {
      if (CountsInNorm(own)) norm.own += SumOfSquares(own.gradient);
    }
  }
  norm.sum += norm.own;
  return norm;
}

Status Exchange::StepOwn(Step step, double learning_rate, double gradient_scale) {
  LH_RETURN_IF_ERROR(optimizer_->Step(step, learning_rate, gradient_scale));
  for (uint32_t b = 0; b < buckets(); ++b) LH_RETURN_IF_ERROR(reducer_->GiveParameters(b));
  return absl::OkStatus();
}

Status Exchange::Skip(Step step) {
  LH_RETURN_IF_ERROR(reducer_->SkipStep());
  return stage_->SkipStep(step);
}

Status Exchange::AddState(StageSnapshot* snapshot) {
  std::vector<NamedArray>& arrays = snapshot->moments;
  if (!outer_) {
    LH_ASSIGN_OR_RETURN(std::vector<NamedArray> moments, optimizer_->Moments());
    std::ranges::move(moments, std::back_inserter(arrays));
  } else if (!options_.replay) {
    AddMomenta(&arrays);
    AddLocals(snapshot);
  }
  for (const replicas::StateTensor& state : reducer_->State()) {
    std::string name = ArrayName(state.name);
    if (options_.replay) continue;  // none is worth keeping
    if (state.name.ends_with(kMaster)) {
      if (form_ == ParameterForm::kFp32) continue;  // they are the parameters
      const size_t dot = name.rfind('.');
      name = PieceName(name.substr(0, dot), state.first, name.substr(dot));
    }
    arrays.push_back({std::move(name),
                      {static_cast<int64_t>(state.values.size())},
                      {state.values.begin(), state.values.end()}});
  }
  return absl::OkStatus();
}

// Also of values that are alike: who goes on from a snapshot before a merge sees by these that it
// is to begin. Behind the merge of its step parameters are what all have.
void Exchange::AddLocals(StageSnapshot* snapshot) {
  if (snapshot->step == step_.value()) return;
  std::map<std::string_view, const std::vector<float>*> anchor_of;
  const auto parameters = reducer_->layout().parameters();
  for (size_t k = 0; k < parameters.size(); ++k) {
    anchor_of[parameters[k].name] = &outer_->anchors()[k];
  }
  for (NamedArray& array : snapshot->parameters) {
    const auto found = anchor_of.find(array.name);
    if (found == anchor_of.end()) continue;
    std::vector<float> local = std::exchange(array.values, *found->second);
    snapshot->moments.push_back(
        {OwnName(array.name + std::string(kLocal)), array.shape, std::move(local)});
  }
}

}  // namespace

StatusOr<std::unique_ptr<ReplicaExchange>> ReplicaExchange::Create(
    Stage* stage, const StageOptions& options, const ReplicasSpec& replicas, uint32_t replica,
    Send send, const StageSnapshot* begun_from) {
  auto exchange = std::make_unique<Exchange>(stage, options, replicas.parameters, std::move(send));
  LH_RETURN_IF_ERROR(exchange->Prepare(replicas, replica, begun_from));
  return exchange;
}

}  // namespace longhaul::worker
