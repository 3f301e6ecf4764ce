#include "cli/find_sets.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "cli/set_folder.h"
#include "run/data/sample_order.h"

namespace longhaul::cli {
namespace {

constexpr uint64_t kLargestList = uint64_t{256} << 20;  // of a data set's files
constexpr char kManifest[] = "dataset.json";
constexpr uint64_t kLargestTokenizer = uint64_t{256} << 20;

bool IsSameJson(const std::string& one, const std::string& other) {
  using Json = nlohmann::json;
  const Json first = Json::parse(one, /*cb=*/nullptr, /*allow_exceptions=*/false);
  const Json second = Json::parse(other, /*cb=*/nullptr, /*allow_exceptions=*/false);
  return !first.is_discarded() && first == second;
}

// What is wrong with a data set's files, as far as their sizes say; "": nothing.
std::string MissingFiles(const SetFolder& folder, const data::TokenList& list) {
  std::string problems;
  const auto look = [&](const data::HashedFile& file) {
    const StatusOr<uint64_t> bytes = folder.SizeOf(file.file);
    if (!bytes.ok()) {
      problems += fmt::format("\n{}", Message(bytes.status()));
    } else if (*bytes < file.offset + file.bytes) {
      problems += fmt::format("\n{}: expected at least {} bytes, it has {}",
                              folder.Shown(file.file), file.offset + file.bytes, *bytes);
    }
  };
  for (const data::Shard& shard : list.shards) {
    look(shard.ids);
    if (shard.mask) look(*shard.mask);
  }
  return problems;
}

// Adds the set to `mixture`, or what is wrong with it to `problems`.
void AddSet(const DataSource& source, const std::string& base, data::Mixture* mixture,
            std::string* problems) {
  const StatusOr<std::unique_ptr<SetFolder>> folder = OpenSetFolder(source.from, base);
  if (!folder.ok()) {
    *problems += fmt::format("\ndata.sets: {}", Message(folder.status()));
    return;
  }
  const StatusOr<std::string> json = (*folder)->ReadWhole(kManifest, kLargestList);
  if (!json.ok()) {
    *problems += fmt::format("\ndata.sets: {}; `longhaul data prepare` makes data sets",
                             Message(json.status()));
    return;
  }
  StatusOr<data::DataSet> set = data::ParseDataSet(*json);
  if (!set.ok()) {
    *problems +=
        fmt::format("\ndata.sets: {}: {}", (*folder)->Shown(kManifest), Message(set.status()));
    return;
  }
  *problems += MissingFiles(**folder, set->training) + MissingFiles(**folder, set->validation);
  mixture->sources.push_back(
      {.folder = (*folder)->Name(), .weight = source.weight, .set = *std::move(set)});
}

Status CheckAgainst(const RunSpec& spec, const data::Mixture& mixture) {
  LH_RETURN_IF_ERROR(data::CheckMixture(mixture, spec.model.context, spec.data.mask_documents));
  LH_RETURN_IF_ERROR(data::CheckPairs(mixture, spec.train.dpo.has_value()));
  if (spec.model.vocabulary && *spec.model.vocabulary < mixture.vocabulary()) {
    return InvalidArgument(
        "data.sets: their vocabulary of {} tokens is larger than the model's {} rows; "
        "prepare them with the model's tokenizer",
        mixture.vocabulary(), *spec.model.vocabulary);
  }
  uint64_t validation = 0;
  for (const data::SourceWindows& source :
       data::WindowsOfSources(mixture, spec.model.context, spec.validation.share)) {
    validation += source.validation;
  }
  if (spec.validation.every > 0 && validation == 0) {
    return InvalidArgument(
        "data.sets: they have no window of {} tokens (model.context + 1) for "
        "validation; prepare some with --validation, raise validation.share, or set "
        "validation.every to 0",
        uint64_t{spec.model.context} + 1);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<data::Mixture> FindSets(const RunSpec& spec, const std::string& folder) {
  data::Mixture mixture;
  std::string problems;
  for (const DataSource& source : spec.data.sets) AddSet(source, folder, &mixture, &problems);
  if (!problems.empty()) return absl::InvalidArgumentError(problems.substr(1));
  LH_RETURN_IF_ERROR(CheckAgainst(spec, mixture));
  return mixture;
}

Status CheckTokenizers(const data::Mixture& mixture, const published::Weights& weights,
                       const std::string& model_folder) {
  constexpr std::string_view kFile = "tokenizer.json";
  const auto of_model = std::ranges::find(weights.files, kFile, &published::SmallFile::name);
  if (of_model == weights.files.end()) return absl::OkStatus();
  const std::string sha256 = Sha256Hex(of_model->contents);
  std::string problems;
  for (const data::Source& source : mixture.sources) {
    const data::DataSet& set = source.set;
    if (set.tokenizer_sha256.empty() || set.tokenizer_sha256 == sha256) continue;
    // Programs write the same tokenizer in several ways.
    const std::string copy = fmt::format("tokenizer/{}", kFile);
    const auto of_folder = OpenSetFolder(source.folder, "");
    const StatusOr<std::string> of_set =
        of_folder.ok() ? (*of_folder)->ReadWhole(copy, kLargestTokenizer) : of_folder.status();
    if (of_set.ok() && IsSameJson(*of_set, of_model->contents)) continue;
    problems += fmt::format(
        "\ndata.sets: {}: its tokenizer {} is not that of the model in {}: {} differs (SHA-256 "
        "{}... and {}...), so the same ids would be other words; prepare the set with --tokenizer "
        "{}",
        source.folder, set.tokenizer, model_folder, kFile, set.tokenizer_sha256.substr(0, 8),
        sha256.substr(0, 8), model_folder);
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems.substr(1));
}

}  // namespace longhaul::cli
