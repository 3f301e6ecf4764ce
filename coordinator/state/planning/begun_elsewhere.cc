#include "coordinator/state/planning/begun_elsewhere.h"

#include <utility>

#include "base/printable.h"
#include "coordinator/state/books/shard_files.h"
#include "run/stored/stored_checkpoint.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kLongestFolder = 1000;

Status CheckFolder(const std::string& folder) {
  const bool has_scheme = folder.starts_with("s3://") || folder.starts_with("gs://");
  if (has_scheme && folder.ends_with('/') && folder.size() <= kLongestFolder &&
      folder == Printable(folder)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "expected the folder of a checkpoint, such as s3://bucket/checkpoints/run/step-00000050/, "
      "got "
      "'{}'",
      Printable(folder, kLongestFolder));
}

}  // namespace

StatusOr<RunRecord> RunElsewhere(const v1::SubmitRequest& submit) {
  const v1::StoredCheckpoint& checkpoint = submit.from_checkpoint();
  LH_RETURN_IF_ERROR(CheckFolder(submit.from_folder()));
  LH_RETURN_IF_ERROR(
      Annotate(stored::Check(checkpoint), "the checkpoint in " + submit.from_folder()));
  RunRecord record;
  StatusOr<RunSpec> spec = ParseRunSpec(checkpoint.run_yaml(), stored::kDescription, {});
  if (!spec.ok()) return Annotate(spec.status(), "the run file of the checkpoint");
  record.id = RunId(checkpoint.manifest().run_id());
  record.spec = *std::move(spec);
  record.data_files.assign(checkpoint.data_files().begin(), checkpoint.data_files().end());
  v1::CheckpointManifest manifest = checkpoint.manifest();
  manifest.set_epoch(0);  // its attempts are another run's
  for (v1::CheckpointFile& file : *manifest.mutable_files()) {
    if (file.run_id().empty()) file.set_run_id(manifest.run_id());
    file.clear_holders();
    AddHolder(submit.from_folder(), "", &file);
    file.mutable_holders(0)->set_piece_bytes(checkpoint.piece_bytes());
  }
  record.step = manifest.step();
  record.checkpoints.push_back(std::move(manifest));
  return record;
}

void KeepChoicesToCompare(const RunSpec& was, RunSpec* now) {
  if (now->replicas.count_auto && !was.replicas.count_auto &&
      now->train.microbatches % was.replicas.count == 0) {
    *now = now->WithChosenReplicas(was.replicas.count);
  }
  if (now->links.HasAutoCodecs() && now->links.chosen.empty() &&
      now->links.error == was.links.error) {
    now->links.chosen = was.links.chosen;
  }
}

void KeepOtherChoices(const RunSpec& was, RunSpec* now) {
  // Unless the file says something else by now.
  if (GroupSpec& group = now->group; group.is_auto() && !was.group.is_auto()) {
    const GroupSpec settled = group.Settled(was.group.tensor, was.group.expert);
    if (settled.tensor == was.group.tensor && settled.expert == was.group.expert) group = settled;
  }
  if (std::optional<uint32_t>& slices = now->pipeline.slices; !slices) {
    slices = was.pipeline.slices;
  }
}

}  // namespace longhaul::coordinator
