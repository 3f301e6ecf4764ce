#include "cli/find_sets.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/http/http_file.h"
#include "run/data/sample_order.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestList = uint64_t{256} << 20;  // of a data set's files

StatusOr<uint64_t> SizeOf(const std::string& place) {
  if (http::IsAddress(place)) return http::SizeOf(place);
  std::error_code error;
  const uintmax_t bytes = fs::file_size(place, error);
  if (error) return NotFound("{}: {}", place, error.message());
  return bytes;
}

// What is wrong with a data set's files, as far as their sizes say; "": nothing.
std::string MissingFiles(const std::string& folder, const data::TokenList& list) {
  std::string problems;
  const bool is_address = http::IsAddress(folder);
  const auto look = [&](const data::HashedFile& file) {
    if (is_address && file.file.starts_with('/')) {
      problems += fmt::format(
          "\n{}: its file {} is on the machine that prepared it; prepare it with --copy, and put "
          "the whole folder there",
          folder, file.file);
      return;
    }
    const std::string place =
        is_address ? http::AddressOf(folder, file.file) : (fs::path(folder) / file.file).string();
    const StatusOr<uint64_t> bytes = SizeOf(place);
    if (!bytes.ok()) {
      problems += fmt::format("\n{}", Message(bytes.status()));
    } else if (*bytes < file.offset + file.bytes) {
      problems += fmt::format("\n{}: expected at least {} bytes, it has {}", place,
                              file.offset + file.bytes, *bytes);
    }
  };
  for (const data::Shard& shard : list.shards) {
    look(shard.ids);
    if (shard.mask) look(*shard.mask);
  }
  return problems;
}

StatusOr<std::string> ReadManifest(const std::string& folder) {
  if (http::IsAddress(folder)) {
    return http::ReadAll(http::AddressOf(folder, "dataset.json"), kLargestList);
  }
  return ReadFile(folder + "/dataset.json", kLargestList);
}

Status CheckAgainst(const RunSpec& spec, const data::Mixture& mixture) {
  LH_RETURN_IF_ERROR(data::CheckMixture(mixture, spec.model.context, spec.data.mask_documents));
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
  for (const DataSource& source : spec.data.sets) {
    const std::string place = http::IsAddress(source.from)
                                  ? source.from
                                  : fs::absolute(fs::path(folder) / source.from).string();
    const StatusOr<std::string> json = ReadManifest(place);
    if (!json.ok()) {
      problems += fmt::format("\ndata.sets: {}; `longhaul data prepare` makes data sets",
                              Message(json.status()));
      continue;
    }
    StatusOr<data::DataSet> set = data::ParseDataSet(*json);
    if (!set.ok()) {
      problems += fmt::format("\ndata.sets: {}/dataset.json: {}", place, Message(set.status()));
      continue;
    }
    problems += MissingFiles(place, set->training) + MissingFiles(place, set->validation);
    mixture.sources.push_back({.folder = place, .weight = source.weight, .set = *std::move(set)});
  }
  if (!problems.empty()) return absl::InvalidArgumentError(problems.substr(1));
  LH_RETURN_IF_ERROR(CheckAgainst(spec, mixture));
  return mixture;
}

}  // namespace longhaul::cli
