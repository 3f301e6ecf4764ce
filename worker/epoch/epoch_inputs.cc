#include "worker/epoch/epoch_inputs.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "run/tokens/token_file.h"
#include "worker/data/set_windows.h"
#include "worker/epoch/chunk_fetcher.h"
#include "worker/epoch/weights_reader.h"

namespace longhaul::worker {
namespace {

constexpr absl::Duration kFetchLimit = absl::Minutes(10);
constexpr absl::Duration kShardsLimit = absl::Minutes(30);
constexpr uint64_t kMostListBytes = uint64_t{256} << 20;
constexpr absl::Duration kWeightsLimit = absl::Hours(12);

}  // namespace

std::vector<ShardFile> ShardFilesOf(const std::vector<v1::CheckpointFile>& files) {
  std::vector<ShardFile> shards;
  for (const v1::CheckpointFile& file : files) {
    shards.push_back({file.name(), file.bytes(), file.sha256()});
    shards.back().run = file.run_id();
  }
  return shards;
}

StatusOr<std::shared_ptr<const data::Mixture>> EpochInputs::FetchMixture(
    const RunSpec& spec) const {
  if (spec.data.sets.empty()) return nullptr;
  LH_ASSIGN_OR_RETURN(const std::string path,
                      resources_.blobs->Fetch(assignment_.data.token_file_sha256,
                                              Deadline::After(kFetchLimit), cancelled_));
  LH_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMostListBytes));
  LH_ASSIGN_OR_RETURN(data::Mixture mixture, data::MixtureFromJson(json));
  LH_RETURN_IF_ERROR(data::CheckFolders(data::FoldersOf(mixture), spec.data.Folders()));
  LH_RETURN_IF_ERROR(data::CheckMixture(mixture, spec.model.context, spec.data.mask_documents));
  LH_RETURN_IF_ERROR(data::CheckPairs(mixture, spec.train.dpo.has_value()));
  return std::make_shared<const data::Mixture>(std::move(mixture));
}

StatusOr<std::shared_ptr<WindowSource>> EpochInputs::FetchText(
    const RunSpec& spec, std::shared_ptr<const data::Mixture> mixture,
    const GivenUp& given_up) const {
  if (mixture) {
    std::shared_ptr<const remote::Store> objects;
    if (resources_.objects != nullptr) objects = resources_.objects->OpenFor(assignment_.run);
    auto chunks = std::make_shared<SetChunks>(
        SetChunksOptions{.mixture = std::move(mixture),
                         .memory_bytes = spec.data.memory_bytes,
                         .from_place = FetchFromPlace(resources_.roots, std::move(objects)),
                         .from_coordinator = FetchFromCoordinator(resources_.pieces)});
    return WindowsOfSets({.chunks = std::move(chunks),
                          .context = spec.model.context,
                          .validation_share = spec.validation.share});
  }
  LH_ASSIGN_OR_RETURN(
      const std::string path,
      resources_.blobs->Fetch(assignment_.data.token_file_sha256, Deadline::After(kFetchLimit),
                              [&] { return cancelled_() || given_up(); }));
  // Checked whole, once: windows are read later without a look at hashes.
  LH_ASSIGN_OR_RETURN(TokenFile file, TokenFile::Open(path, /*verify=*/true));
  return WindowsOfFile(std::make_shared<const TokenFile>(std::move(file)), spec.model.context);
}

Status EpochInputs::CheckText(const WindowSource& text, uint32_t context) const {
  // The coordinator has planned the run's steps and validations with these counts.
  const DataSet& expected = assignment_.data;
  const uint64_t training = text.WindowsOf(Text::kTraining);
  const uint64_t validation = text.WindowsOf(Text::kValidation);
  const uint64_t wanted = WindowsOf(expected.tokens - expected.validation_tokens, context);
  const uint64_t wanted_validation = WindowsOf(expected.validation_tokens, context);
  if (training == wanted && validation == wanted_validation) return absl::OkStatus();
  return DataLoss(
      "expected a text of {} windows and {} for validation, of {} tokens each; the one "
      "of this content, {}, has {} and {}",
      wanted, wanted_validation, context, expected.token_file_sha256, training, validation);
}

std::optional<SampleText> EpochInputs::FetchSampleText(const RunSpec& spec) const {
  if (spec.data.sets.empty()) return SampleText();  // tokens are bytes
  const std::string& sha256 = spec.samples.pieces_sha256;
  if (sha256.empty()) return std::nullopt;
  const auto read = [&]() -> StatusOr<SampleText> {
    LH_ASSIGN_OR_RETURN(const std::string path,
                        resources_.blobs->Fetch(sha256, Deadline::After(kFetchLimit), cancelled_));
    LH_ASSIGN_OR_RETURN(std::string file, ReadFile(path, kMostPieceTableBytes));
    LH_ASSIGN_OR_RETURN(TokenPieces pieces, TokenPieces::Parse(std::move(file)));
    return SampleText(std::make_shared<const TokenPieces>(std::move(pieces)));
  };
  StatusOr<SampleText> text = read();
  if (text.ok()) return *std::move(text);
  LogWarning("run {}: samples are token ids without text: {}", assignment_.run.value(),
             Message(text.status()));
  return std::nullopt;
}

Status EpochInputs::LoadWeights(const RunSpec& spec, Stage& model) const {
  LH_ASSIGN_OR_RETURN(
      WeightsReader weights,
      WeightsReader::Open(
          spec, resources_.roots, resources_.pieces,
          resources_.objects == nullptr ? nullptr : resources_.objects->OpenFor(assignment_.run),
          Deadline::After(kWeightsLimit), cancelled_));
  LH_RETURN_IF_ERROR(
      model.Load([&](const model::PlacedParameter& parameter, std::span<float> values) {
        return weights.Read(parameter, values);
      }));
  LogInfo(
      "run {}: {} begins with weights of {}: {} from there, {} from the coordinator",
      assignment_.run.value(), ToString(cell_), spec.weights.from,
      FormatBytes(static_cast<double>(weights.bytes_from_folder() + weights.bytes_from_address())),
      FormatBytes(static_cast<double>(weights.bytes_fetched())));
  return absl::OkStatus();
}

StatusOr<SharedSnapshot> EpochInputs::ReadShards(
    const std::vector<v1::CheckpointFile>& resume_files, const GivenUp& given_up) const {
  const std::string& me = assignment_.Find(cell_)->worker.value();
  const Deadline deadline = Deadline::After(kShardsLimit);
  std::vector<ShardFile> files = ShardFilesOf(resume_files);
  for (size_t i = 0; i < files.size(); ++i) {
    const v1::CheckpointFile& file = resume_files[i];
    const bool here = std::any_of(
        file.holders().begin(), file.holders().end(),
        [&](const auto& holder) { return holder.worker_id() == me && holder.problem().empty(); });
    // A file of this worker is read where it lies; the others are fetched beside it.
    if (here) continue;
    StatusOr<std::string> copy = resources_.shard_copies->Fetch(
        file.sha256(), deadline, [&] { return cancelled_() || given_up(); });
    if (!copy.ok()) {
      return Annotate(copy.status(), fmt::format("{} of the checkpoint of step {}", file.name(),
                                                 assignment_.start_step));
    }
    files[i].path = *std::move(copy);
  }
  LH_ASSIGN_OR_RETURN(
      StageSnapshot snapshot,
      resources_.shards->Read(assignment_.run, Step(assignment_.start_step), files));
  // The stage has the numbers now; a fetched file is not needed again.
  for (const ShardFile& file : files) {
    if (!file.path.empty()) resources_.shard_copies->Forget(file.sha256);
  }
  return std::make_shared<const StageSnapshot>(std::move(snapshot));
}

}  // namespace longhaul::worker
