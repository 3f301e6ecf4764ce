#include "worker/pipeline/replica_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "transport/replicas/parameters.h"
#include "worker/stage/replicas/host_threads.h"
#include "worker/stage/replicas/torch_arithmetic.h"

namespace longhaul::worker {
namespace {

using replicas::OwnPiece;
using replicas::ParameterForm;
using replicas::ReplicatedParameter;

constexpr std::string_view kAnchor = ".anchor", kOuterMomentum = ".outer_momentum",
                           kLocal = ".local";

}  // namespace

ReplicaExchange::ReplicaExchange(Stage* stage, const StageOptions& options,
                                 const ReplicasSpec& replicas, uint32_t replica, SendTo send)
    : stage_(stage),
      options_(options),
      form_(replicas.parameters),
      send_(std::move(send)),
      replica_(replica),
      steps_apart_(replicas.steps_apart()),
      pool_(HostThreads(options)),
      in_host_(&pool_) {}

StatusOr<std::unique_ptr<ReplicaExchange>> ReplicaExchange::Create(
    Stage* stage, const StageOptions& options, const ReplicasSpec& replicas, uint32_t replica,
    SendTo send, Tell tell, const StageSnapshot* begun_from) {
  std::unique_ptr<ReplicaExchange> exchange(
      new ReplicaExchange(stage, options, replicas, replica, std::move(send)));
  LH_RETURN_IF_ERROR(exchange->Prepare(replicas, std::move(tell), begun_from));
  return exchange;
}

StatusOr<std::vector<SharedParameter>> ReplicaExchange::Shared() {
  LH_ASSIGN_OR_RETURN(std::vector<SharedParameter> all,
                      stage_->SharedParameters(on_device_ ? SharedIn::kDevice : SharedIn::kHost));
  std::map<std::string, SharedParameter*> by_name;
  for (SharedParameter& one : all) by_name[one.name] = &one;
  std::vector<SharedParameter> ordered;
  for (const ReplicatedParameter& parameter : reducer_->layout().parameters()) {
    const auto found = by_name.find(parameter.name);
    if (found == by_name.end() || found->second->value.size() != parameter.elements) {
      return Internal("replicas exchange {} with {} elements, which the stage does not hold",
                      parameter.name, parameter.elements);
    }
    ordered.push_back(std::move(*found->second));
  }
  LH_CHECK(ordered.size() == all.size(), "the stage has {} parameters, replicas exchange {}",
           all.size(), ordered.size());
  return ordered;
}

Status ReplicaExchange::Prepare(const ReplicasSpec& spec, Tell tell,
                                const StageSnapshot* begun_from) {
  const std::vector<model::PlacedParameter> parameters = options_.parameters();
  // Replicas that train apart keep anchors and differences in host memory.
  if (!spec.trains_apart() && stage_->shares_on_device()) {
    LH_ASSIGN_OR_RETURN(on_device_, MakeTorchArithmetic(options_.device, options_.threads));
  }
  LH_ASSIGN_OR_RETURN(
      replicas::Layout layout,
      replicas::Layout::Make(
          replicas::ReplicatedParameters(parameters,
                                         options_.train.optimizer.kind == OptimizerKind::kMuon),
          {.replicas = spec.count, .gradients = spec.gradients, .parameters = spec.parameters}));
  LH_ASSIGN_OR_RETURN(reducer_, replicas::Reducer::Create(
                                    std::move(layout),
                                    {.replica = replica_,
                                     .seed = options_.train.seed,
                                     .arithmetic = &arithmetic(),
                                     .may_skip = !spec.trains_apart() &&
                                                 options_.train.on_nonfinite == OnNonfinite::kSkip},
                                    this));
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<std::span<const float>> values;
  for (const SharedParameter& one : shared) {
    values.emplace_back(one.value);
    counted_elsewhere_.push_back(one.counted_elsewhere);
  }
  LH_RETURN_IF_ERROR(reducer_->BeginMasters(values));
  final_with_ = replicas::FinalWith(reducer_->layout(), parameters, options_.first_layer);
  if (spec.trains_apart()) {
    merges_.emplace(spec.gradients.local, values, reducer_.get(), &pool_, std::move(tell));
  } else {
    LH_RETURN_IF_ERROR(MakeOptimizer(shared));
  }
  return begun_from == nullptr ? absl::OkStatus() : Restore(*begun_from);
}

Status ReplicaExchange::MakeOptimizer(const std::vector<SharedParameter>& shared) {
  if (const auto& replay = options_.replay) {
    optimizer_ =
        ShardOptimizer::OfReplay(replay->optimizer * options_.layers / options_.model.layers /
                                 reducer_->layout().options().replicas);
    return absl::OkStatus();
  }
  std::vector<ParameterShard> shards;
  for (uint32_t b = 0; b < buckets(); ++b) {
    for (const OwnPiece& own : reducer_->Own(b)) {
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
  LH_ASSIGN_OR_RETURN(optimizer_, ShardOptimizer::Create(
                                      options_.train, on_device_ ? options_.device : DeviceName(),
                                      HostThreads(options_), std::move(shards)));
  return absl::OkStatus();
}

std::string ReplicaExchange::ArrayName(const std::string& state) const {
  // A replica that goes on alone reads arrays named .master as its parameters. Replicas that train
  // apart store anchors, which must not be read so: they get another name.
  if (merges_ && state.ends_with(kMaster)) {
    return state.substr(0, state.size() - kMaster.size()) + std::string(kAnchor);
  }
  return state.ends_with(kResidual) ? OwnName(state) : state;
}

std::string ReplicaExchange::OwnName(const std::string& state) const {
  return fmt::format("{}-{}-of-{}", state, replica_, reducer_->layout().options().replicas);
}

// Residuals of another number of replicas are missing, which is harmless: they are only what
// rounding lost.
Status ReplicaExchange::Restore(const StageSnapshot& snapshot) {
  const ArrayPieces pieces(snapshot.moments);
  for (const replicas::StateTensor& state : reducer_->State()) {
    const std::string name = ArrayName(state.name);
    if (!pieces.Has(name)) continue;
    std::vector<float> values(state.values.size());
    LH_RETURN_IF_ERROR(pieces.Read(name, state.first, values));
    LH_RETURN_IF_ERROR(arithmetic().Write(values, state.values));
  }
  if (!merges_) return optimizer_->Restore(pieces);
  for (uint32_t b = 0; b < buckets(); ++b) {
    for (size_t k = 0; k < reducer_->Own(b).size(); ++k) {
      const replicas::Piece& piece = reducer_->Own(b)[k].piece;
      const std::string name = NameOf(piece) + std::string(kOuterMomentum);
      if (!pieces.Has(name)) continue;  // it was trained otherwise before
      LH_RETURN_IF_ERROR(pieces.Read(name, piece.first, merges_->outer().momenta(b)[k]));
    }
  }
  return RestoreLocals(pieces);
}

Status ReplicaExchange::RestoreLocals(const ArrayPieces& pieces) {
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  for (const SharedParameter& one : shared) {
    const std::string name = OwnName(one.name + std::string(kLocal));
    if (!pieces.Has(name)) continue;
    awaits_merge_ = true;
    LH_RETURN_IF_ERROR(pieces.Read(name, 0, one.value));
  }
  return awaits_merge_ ? stage_->TakeSharedValues() : absl::OkStatus();
}

Status ReplicaExchange::BeginMerge(Step step) {
  step_ = step;
  awaits_merge_ = false;
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<std::span<const float>> locals;
  for (const SharedParameter& one : shared) locals.emplace_back(one.value);
  merges_->Begin(step.value() / steps_apart_, locals);
  return absl::OkStatus();
}

StatusOr<bool> ReplicaExchange::IsMerged() {
  if (!merges_->under_way()) return true;
  LH_ASSIGN_OR_RETURN(const bool is_ready, merges_->IsReady());
  if (!is_ready) return false;
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<std::span<float>> values;
  for (const SharedParameter& one : shared) values.push_back(one.value);
  merges_->Merge(values);
  LH_RETURN_IF_ERROR(stage_->TakeSharedValues());
  return true;
}

Status ReplicaExchange::BeginBeside(Step step) {
  const auto timed = [this](const auto& work) {
    const MonoTime begin = Now();
    Status status = work();
    time_beside_ += Now() - begin;
    return status;
  };
  const bool tells = stage_->TellWhatIsFinal([this, timed](uint32_t block) {
    if (beside_.ok()) beside_ = timed([&] { return GiveFrom(block); });
  });
  if (!tells) return absl::OkStatus();
  // From here on GiveFrom counts down: gradients become final from the last bucket to the first.
  buckets_left_ = buckets();
  return timed([&] { return BeginReducer(step); });
}

Status ReplicaExchange::BeginReducer(Step step) {
  step_ = step;
  LH_ASSIGN_OR_RETURN(const std::vector<SharedParameter> shared, Shared());
  std::vector<replicas::ParameterMemory> memory;
  for (const SharedParameter& one : shared) memory.push_back({one.gradient, one.value});
  return reducer_->Begin(step.value(), std::move(memory));
}

Status ReplicaExchange::GiveFrom(uint32_t block) {
  for (uint32_t& left = *buckets_left_; left > 0 && final_with_[left - 1] >= block; --left) {
    LH_RETURN_IF_ERROR(reducer_->GiveGradients(left - 1));
  }
  return absl::OkStatus();
}

Status ReplicaExchange::Begin(Step step) {
  // BeginBeside has begun the reducer already if the stage tells what is final.
  if (!buckets_left_) {
    LH_RETURN_IF_ERROR(BeginReducer(step));
    buckets_left_ = buckets();
  }
  LH_RETURN_IF_ERROR(std::exchange(beside_, absl::OkStatus()));
  LH_RETURN_IF_ERROR(GiveFrom(0));
  buckets_left_.reset();
  return absl::OkStatus();
}

Status ReplicaExchange::Take(ReplicaSaid said) {
  if (!merges_) return reducer_->Take(said.replica, std::move(said.message));
  merges_->Take(std::move(said));
  return absl::OkStatus();
}

Status ReplicaExchange::Send(uint32_t to, replicas::MessageKind, std::vector<std::byte> message) {
  send_(to, step_, std::move(message));
  return absl::OkStatus();
}

bool ReplicaExchange::IsReduced() const {
  for (uint32_t b = 0; b < buckets(); ++b) {
    if (!reducer_->IsReduced(b)) return false;
  }
  return true;
}

StatusOr<SquaredNorm> ReplicaExchange::AddSquaredNorm(double sum) {
  std::vector<std::span<const float>> gradients;
  for (uint32_t b = buckets(); b-- > 0;) {
    for (const OwnPiece& own : reducer_->Own(b)) {
      if (CountsInNorm(own)) gradients.emplace_back(own.gradient);
    }
  }
  LH_ASSIGN_OR_RETURN(const double own, arithmetic().SumOfSquares(gradients));
  return SquaredNorm{.sum = sum + own, .own = own};
}

Status ReplicaExchange::StepOwn(Step step, double learning_rate, double gradient_scale) {
  LH_RETURN_IF_ERROR(optimizer_->Step(step, learning_rate, gradient_scale));
  for (uint32_t b = 0; b < buckets(); ++b) LH_RETURN_IF_ERROR(reducer_->GiveParameters(b));
  return absl::OkStatus();
}

Status ReplicaExchange::Skip(Step step) {
  LH_RETURN_IF_ERROR(reducer_->SkipStep());
  return stage_->SkipStep(step);
}

Status ReplicaExchange::AddState(StageSnapshot* snapshot) {
  std::vector<NamedArray>& arrays = snapshot->moments;
  if (!merges_) {
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
    std::vector<float> values(state.values.size());
    LH_RETURN_IF_ERROR(arithmetic().Read(state.values, values));
    arrays.push_back({std::move(name), {static_cast<int64_t>(values.size())}, std::move(values)});
  }
  return absl::OkStatus();
}

void ReplicaExchange::AddMomenta(std::vector<NamedArray>* arrays) {
  for (uint32_t b = 0; b < buckets(); ++b) {
    for (size_t k = 0; k < reducer_->Own(b).size(); ++k) {
      const replicas::Piece& piece = reducer_->Own(b)[k].piece;
      const std::vector<float>& momentum = merges_->outer().momenta(b)[k];
      arrays->push_back({PieceName(NameOf(piece), piece.first, kOuterMomentum),
                         {static_cast<int64_t>(momentum.size())},
                         momentum});
    }
  }
}

// Locals are stored even if they equal the anchors: their presence tells a resume that a merge must
// begin first. After the last step's merge there are none, as all replicas are equal.
void ReplicaExchange::AddLocals(StageSnapshot* snapshot) {
  if (snapshot->step == step_.value()) return;
  std::map<std::string_view, const std::vector<float>*> anchor_of;
  const auto parameters = reducer_->layout().parameters();
  for (size_t k = 0; k < parameters.size(); ++k) {
    anchor_of[parameters[k].name] = &merges_->outer().anchors()[k];
  }
  for (NamedArray& array : snapshot->parameters) {
    const auto found = anchor_of.find(array.name);
    if (found == anchor_of.end()) continue;
    std::vector<float> local = std::exchange(array.values, *found->second);
    snapshot->moments.push_back(
        {OwnName(array.name + std::string(kLocal)), array.shape, std::move(local)});
  }
}

}  // namespace longhaul::worker
