#include "coordinator/state/resume.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <variant>

#include "run/model/family.h"

namespace longhaul::coordinator {
namespace {

class Differences {
 public:
  template <class T>
  void Compare(std::string_view key, const T& before, const T& now) {
    if (before == now) return;
    text_ += fmt::format("{}{} is {} in the run and {} in this file", text_.empty() ? "" : "; ",
                         key, before, now);
  }
  void Add(const std::string& sentence) { text_ += (text_.empty() ? "" : "; ") + sentence; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void CompareFiles(const std::vector<v1::DataFile>& before, const std::vector<v1::DataFile>& now,
                  Differences* differences) {
  if (before.size() != now.size()) {
    differences->Add(
        fmt::format("data.text matches {} files in the run and {} now", before.size(), now.size()));
    return;
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].sha256() == now[i].sha256()) continue;
    differences->Add(
        fmt::format("data.text: the contents of '{}' differ from those of the run's "
                    "file '{}'",
                    now[i].name(), before[i].name()));
    return;
  }
}

void CompareModels(const ModelSpec& before, const ModelSpec& now, Differences* differences) {
  differences->Compare("model.family", ToString(before.family), ToString(now.family));
  differences->Compare("model.layers", before.layers, now.layers);
  differences->Compare("model.hidden", before.hidden, now.hidden);
  differences->Compare("model.heads", before.heads, now.heads);
  differences->Compare("model.context", before.context, now.context);
  differences->Compare("model.tied", before.tied, now.tied);
  const auto vocabulary = [](const ModelSpec& model) {
    return model.vocabulary ? fmt::format("{}", *model.vocabulary) : std::string("auto");
  };
  differences->Compare("model.vocabulary", vocabulary(before), vocabulary(now));
  const auto lora = [](const ModelSpec& model) {
    if (!model.lora) return std::string("left out");
    return fmt::format("rank {}, alpha {}, targets {}", model.lora->rank, model.lora->alpha,
                       fmt::join(model.lora->targets, ", "));
  };
  differences->Compare("train.lora", lora(before), lora(now));
  if (before.family != now.family) return;
  for (const model::Key& key : model::FamilyOf(before).keys) {
    differences->Compare(fmt::format("model.{}", key.name), model::TextOf(key, before),
                         model::TextOf(key, now));
  }
}

}  // namespace

Status CheckResumable(const RunRecord& record, const RunSpec& spec,
                      const std::vector<v1::DataFile>& files) {
  const RunSpec& before = record.spec;
  Differences differences;
  CompareModels(before.model, spec.model, &differences);
  differences.Compare("model.weights", before.weights.sha256, spec.weights.sha256);
  differences.Compare("data.tokenizer", before.data.tokenizer, spec.data.tokenizer);
  differences.Compare("data.list", before.data.list_sha256, spec.data.list_sha256);
  differences.Compare("data.seed", before.data.seed, spec.data.seed);
  CompareFiles(record.data_files, files, &differences);
  // The validation part is cut off the same token file.
  differences.Compare("validation.share", before.validation.share, spec.validation.share);
  if (before.replicas.count == spec.replicas.count) {
    differences.Compare("train.microbatches", before.train.microbatches, spec.train.microbatches);
  } else {
    differences.Compare("train.microbatches times pipeline.replicas",
                        before.train.microbatches * before.replicas.count,
                        spec.train.microbatches * spec.replicas.count);
  }
  // Replicas that train apart have an optimizer each. Another number of replicas cannot go on with
  // these.
  if (before.replicas.trains_apart() || spec.replicas.trains_apart()) {
    differences.Compare("pipeline.replicas", before.replicas.count, spec.replicas.count);
    differences.Compare("pipeline.gradients", replicas::ToString(before.replicas.gradients),
                        replicas::ToString(spec.replicas.gradients));
  }
  differences.Compare("train.microbatch_size", before.train.microbatch_size,
                      spec.train.microbatch_size);
  // A file that leaves it open takes the run's.
  if (before.train.dtype != ComputeDtype::kAuto && spec.train.dtype != ComputeDtype::kAuto) {
    differences.Compare("train.dtype", ToString(before.train.dtype), ToString(spec.train.dtype));
  }
  differences.Compare("train.seed", before.train.seed, spec.train.seed);
  differences.Compare("train.optimizer.kind", ToString(before.train.optimizer.kind),
                      ToString(spec.train.optimizer.kind));
  // Ranks with channels of their own are another model for each number of them.
  const GroupSpec &group_before = before.group, &group = spec.group;
  differences.Compare("group.p", group_before.shared_channels, group.shared_channels);
  if (group_before.shared_channels < 1 && group.shared_channels < 1) {
    differences.Compare("group.tensor", group_before.tensor, group.tensor);
  }
  differences.Compare("pipeline.threads_per_stage", before.pipeline.threads_per_stage,
                      spec.pipeline.threads_per_stage);
  // As dtype.
  if (before.pipeline.slices && spec.pipeline.slices) {
    differences.Compare("pipeline.slices", *before.pipeline.slices, *spec.pipeline.slices);
  }
  if (differences.text().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "run {} cannot be resumed with this file: {}; put back what the run has, or submit "
      "without --resume as a new run",
      record.id.value(), differences.text()));
}

Status CheckGoesFurther(const RunRecord& record, const RunSpec& spec) {
  const std::string& id = record.id.value();
  if (spec.train.steps <= record.spec.train.steps) {
    return absl::FailedPreconditionError(
        fmt::format("run {} is done after its {} steps and this file ends at train.steps: {}; "
                    "raise train.steps "
                    "to go on, or submit without --resume as a new run",
                    id, record.spec.train.steps, spec.train.steps));
  }
  if (!record.checkpoints.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "run {} is done and left no checkpoint to go on from; expected one of its last step, which "
      "checkpoint.at_end keeps; submit it without --resume as a new run",
      id));
}

}  // namespace longhaul::coordinator
