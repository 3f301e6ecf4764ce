#include "coordinator/state/resume.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "run/file/keys.h"

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

}  // namespace

Status CheckResumable(const RunRecord& record, const RunSpec& spec,
                      const std::vector<v1::DataFile>& files, std::string_view flag) {
  const RunSpec& before = record.spec;
  Differences differences;
  const bool same_family = before.model.family == spec.model.family;
  const bool same_replicas = before.replicas.count == spec.replicas.count;
  for (const config::Key* key : config::ComparedKeys()) {
    if ((key->affects & config::kModel) == 0) continue;
    if (key->notes.of_family && !same_family) continue;
    if (key->path == "train.microbatches" && !same_replicas) continue;
    const std::string was = config::TextOf(*key, before), is = config::TextOf(*key, spec);
    // A file that leaves the value open takes the run's.
    if (key->notes.auto_is_open && (was == "auto" || is == "auto")) continue;
    differences.Compare(key->path, was, is);
  }
  CompareFiles(record.data_files, files, &differences);
  if (!same_replicas) {
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
  // Ranks with channels of their own are another model for each number of them.
  if (before.group.shared_channels < 1 && spec.group.shared_channels < 1) {
    differences.Compare("group.tensor", before.group.tensor, spec.group.tensor);
  }
  if (differences.text().empty()) return absl::OkStatus();
  return FailedPrecondition(
      "run {} cannot be resumed with this file: {}; put back what the run has, or submit "
      "without {} as a new run",
      record.id.value(), differences.text(), flag);
}

Status CheckGoesFurther(const RunRecord& record, const RunSpec& spec) {
  const std::string& id = record.id.value();
  if (spec.train.steps <= record.spec.train.steps) {
    return FailedPrecondition(
        "run {} is done after its {} steps and this file ends at train.steps: {}; "
        "raise train.steps "
        "to go on, or submit without --resume as a new run",
        id, record.spec.train.steps, spec.train.steps);
  }
  if (!record.checkpoints.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "run {} is done and left no checkpoint to go on from; expected one of its last step, which "
      "checkpoint.at_end keeps; submit it without --resume as a new run",
      id);
}

}  // namespace longhaul::coordinator
