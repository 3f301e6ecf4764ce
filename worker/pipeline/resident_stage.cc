#include "worker/pipeline/resident_stage.h"

#include <utility>

#include "run/file/keys.h"

namespace longhaul::worker {
namespace {

// Behind the names of parameters that are an update older: the next step's passes compute with
// them.
constexpr std::string_view kOlder = ".older";

uint64_t ParametersIn(const StageSnapshot& snapshot) {
  uint64_t count = 0;
  for (const NamedArray& array : snapshot.parameters) count += array.values.size();
  return count;
}

uint64_t BytesOf(const StageSnapshot& snapshot) {
  uint64_t bytes = 0;
  for (const std::vector<NamedArray>* arrays :
       {&snapshot.parameters, &snapshot.moments, &snapshot.tables}) {
    for (const NamedArray& array : *arrays) bytes += array.bytes().size();
  }
  return bytes;
}

// Keys that each step reads anew (the rate, its schedule, clipping) build no stage anew.
StageOptions WithoutKeysOfSteps(StageOptions options) {
  RunSpec spec;
  spec.train = options.train;
  options.train = config::OnlyWhatAffects(config::kStage, spec).train;
  return options;
}

}  // namespace

bool ResidentIdentity::IsSame(const ResidentIdentity& other) const {
  return run == other.run && group == other.group && overlaps_steps == other.overlaps_steps &&
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

Stage* ResidentStage::Newest() const {
  return twin_ && twin_->steps() > model_->steps() ? twin_.get() : model_.get();
}

Stage& ResidentStage::ModelFor(Step step) {
  return twin_ && (step.value() - turns_from_) % 2 == 1 ? *twin_ : *model_;
}

Status ResidentStage::TakeTurn(Step step) {
  if (!twin_) return absl::OkStatus();
  Stage& taking = ModelFor(step);
  return taking.TakeTurnFrom(&taking == twin_.get() ? model_.get() : twin_.get());
}

Status ResidentStage::MakeTwin(uint64_t step) {
  if (!identity_.overlaps_steps) return absl::OkStatus();
  turns_from_ = step;
  if (twin_) {
    // The newest one has the optimizer.
    if (Newest() == twin_.get()) std::swap(model_, twin_);
    return absl::OkStatus();
  }
  LH_ASSIGN_OR_RETURN(twin_, model_->MakeTwin());
  return absl::OkStatus();
}

Status ResidentStage::Restore(const StageSnapshot& snapshot) {
  LH_RETURN_IF_ERROR(model_->Restore(snapshot));
  if (!twin_) return absl::OkStatus();
  StageSnapshot older{.step = snapshot.step, .parameters = {}, .moments = {}};
  for (const NamedArray& array : snapshot.moments) {
    if (!array.name.ends_with(kOlder)) continue;
    older.parameters.push_back(array);
    older.parameters.back().name.resize(array.name.size() - kOlder.size());
  }
  // What was written where steps did not overlap.
  return twin_->Restore(older.parameters.empty() ? snapshot : older);
}

uint64_t ResidentStage::memory_bytes() const {
  const uint64_t model = model_->memory_bytes() + (twin_ ? twin_->memory_bytes() : 0);
  if (identity_.options.device.cuda_index) return model;
  const std::lock_guard lock(mutex_);
  return model + (kept_ && kept_->snapshot ? BytesOf(*kept_->snapshot) : 0);
}

ResidentStage::Source ResidentStage::SourceOf(const ParametersOrigin& origin) const {
  const std::lock_guard lock(mutex_);
  if (kept_) {
    if (kept_->origin != origin) return Source::kFiles;
    if (!identity_.has_replicas && Newest()->steps() == origin.step) return Source::kParameters;
    return kept_->snapshot ? Source::kSnapshot : Source::kFiles;
  }
  const bool untrained = Newest()->steps() == 0 && origin == ParametersOrigin();
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
  const Source source = SourceOf(origin);
  LH_RETURN_IF_ERROR(MakeTwin(origin.step));
  switch (source) {
    case Source::kParameters:
      return absl::OkStatus();
    case Source::kSnapshot: {
      const std::lock_guard lock(mutex_);
      return Restore(*kept_->snapshot);
    }
    case Source::kFiles:
      break;
  }
  if (!read) {
    return Internal("the parameters of step {} are not in memory, and their files were not read",
                    origin.step);
  }
  const std::lock_guard lock(mutex_);
  kept_.reset();
  LH_RETURN_IF_ERROR(Restore(*read));
  // The files of another split hold layers of others too, which take memory that nobody counted.
  if (ParametersIn(*read) != model_->parameter_count()) read.reset();
  kept_ = Kept{origin, std::move(read)};
  return absl::OkStatus();
}

StatusOr<SharedSnapshot> ResidentStage::TakeSnapshot(
    std::vector<NamedArray> tables, const std::function<Status(StageSnapshot* snapshot)>& add) {
  {
    const std::lock_guard lock(mutex_);
    kept_.reset();
  }
  LH_ASSIGN_OR_RETURN(StageSnapshot snapshot, Newest()->Snapshot());
  if (twin_) {
    const Stage& other = Newest() == twin_.get() ? *model_ : *twin_;
    LH_ASSIGN_OR_RETURN(StageSnapshot older, other.Snapshot());
    for (NamedArray& array : older.parameters) {
      array.name += kOlder;
      snapshot.moments.push_back(std::move(array));
    }
  }
  snapshot.tables = std::move(tables);
  if (add) LH_RETURN_IF_ERROR(add(&snapshot));
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
  if (twin_) LH_RETURN_IF_ERROR(twin_->DropStep());
  return model_->DropStep();
}

}  // namespace longhaul::worker
