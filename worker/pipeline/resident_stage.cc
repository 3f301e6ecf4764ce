#include "worker/pipeline/resident_stage.h"

#include <fmt/core.h>

#include <utility>

namespace longhaul::worker {
namespace {

uint64_t ParametersIn(const StageSnapshot& snapshot) {
  uint64_t count = 0;
  for (const NamedArray& array : snapshot.parameters) count += array.values.size();
  return count;
}

uint64_t BytesOf(const StageSnapshot& snapshot) {
  uint64_t bytes = 0;
  for (const std::vector<NamedArray>* arrays :
       {&snapshot.parameters, &snapshot.moments, &snapshot.tables}) {
    for (const NamedArray& array : *arrays) bytes += array.values.size() * sizeof(float);
  }
  return bytes;
}

StageOptions WithoutKeysOfSteps(StageOptions options) {
  const TrainSpec any;
  options.train.steps = any.steps;
  options.train.schedule = any.schedule;
  options.train.on_nonfinite = any.on_nonfinite;
  options.train.optimizer.lr = any.optimizer.lr;
  options.train.optimizer.clip_norm = any.optimizer.clip_norm;
  return options;
}

}  // namespace

bool ResidentIdentity::IsSame(const ResidentIdentity& other) const {
  return run == other.run && group == other.group &&
         WithoutKeysOfSteps(options) == WithoutKeysOfSteps(other.options);
}

ParametersOrigin OriginOf(uint64_t step, const std::vector<ShardFile>& files) {
  ParametersOrigin origin{.step = step, .sha256 = {}};
  for (const ShardFile& file : files) {
    if (!HoldsTables(file.name)) origin.sha256.insert(file.sha256);
  }
  return origin;
}

StatusOr<std::unique_ptr<ResidentStage>> ResidentStage::Create(ResidentIdentity identity,
                                                               const MakeStage& make_stage) {
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Stage> model, make_stage(identity.options));
  return std::make_unique<ResidentStage>(std::move(identity), std::move(model));
}

ResidentStage::ResidentStage(ResidentIdentity identity, std::unique_ptr<Stage> model)
    : identity_(std::move(identity)), model_(std::move(model)) {}

uint64_t ResidentStage::memory_bytes() const {
  const uint64_t model = model_->memory_bytes();
  if (identity_.options.device.cuda_index) return model;
  const std::lock_guard lock(mutex_);
  return model + (kept_ && kept_->snapshot ? BytesOf(*kept_->snapshot) : 0);
}

ResidentStage::Source ResidentStage::SourceOf(const ParametersOrigin& origin) const {
  const std::lock_guard lock(mutex_);
  if (kept_) {
    if (kept_->origin != origin) return Source::kFiles;
    if (!identity_.has_replicas && model_->steps() == origin.step) return Source::kParameters;
    return kept_->snapshot ? Source::kSnapshot : Source::kFiles;
  }
  const bool untrained = model_->steps() == 0 && origin == ParametersOrigin();
  return untrained ? Source::kParameters : Source::kFiles;
}

void ResidentStage::ForgetSnapshot() {
  const std::lock_guard lock(mutex_);
  if (kept_) kept_->snapshot.reset();
}

SharedSnapshot ResidentStage::snapshot() const {
  const std::lock_guard lock(mutex_);
  return kept_ ? kept_->snapshot : nullptr;
}

Status ResidentStage::BeginFrom(const ParametersOrigin& origin, SharedSnapshot read) {
  switch (SourceOf(origin)) {
    case Source::kParameters:
      return absl::OkStatus();
    case Source::kSnapshot: {
      const std::lock_guard lock(mutex_);
      return model_->Restore(*kept_->snapshot);
    }
    case Source::kFiles:
      break;
  }
  if (!read) {
    return absl::InternalError(fmt::format(
        "the parameters of step {} are not in memory, and their files were not read", origin.step));
  }
  const std::lock_guard lock(mutex_);
  kept_.reset();
  LH_RETURN_IF_ERROR(model_->Restore(*read));
  // The files of another split hold layers of others too, which take memory that nobody counted.
  if (ParametersIn(*read) != model_->parameter_count()) read.reset();
  kept_ = Kept{origin, std::move(read)};
  return absl::OkStatus();
}

StatusOr<SharedSnapshot> ResidentStage::TakeSnapshot(std::vector<NamedArray> tables,
                                                     std::vector<NamedArray> state) {
  {
    const std::lock_guard lock(mutex_);
    kept_.reset();
  }
  LH_ASSIGN_OR_RETURN(StageSnapshot snapshot, model_->Snapshot());
  snapshot.tables = std::move(tables);
  std::ranges::move(state, std::back_inserter(snapshot.moments));
  return std::make_shared<const StageSnapshot>(std::move(snapshot));
}

void ResidentStage::Keep(SharedSnapshot snapshot, const std::vector<ShardFile>& files) {
  ParametersOrigin origin = OriginOf(snapshot->step, files);
  const std::lock_guard lock(mutex_);
  kept_ = Kept{std::move(origin), std::move(snapshot)};
}

std::shared_ptr<WindowSource> ResidentStage::TextOf(const std::string& sha256) const {
  return sha256 == text_sha256_ ? text_ : nullptr;
}

void ResidentStage::KeepText(const std::string& sha256, std::shared_ptr<WindowSource> text) {
  text_sha256_ = sha256;
  text_ = std::move(text);
}

Status ResidentStage::EndEpoch(const Status& outcome) {
  // A neighbour that is gone and an abort come between two calls of the model, never inside one.
  if (!outcome.ok() && !absl::IsCancelled(outcome) && !absl::IsUnavailable(outcome)) return outcome;
  return model_->DropStep();
}

}  // namespace longhaul::worker
