#include "run/data/data_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/printable.h"

namespace longhaul::data {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSetFormat = "longhaul data set", kMixtureFormat = "longhaul mixture";
// A set of preferences has another version, so that a program that does not know them refuses the
// set instead of training on rejected answers.
constexpr int kVersion = 1, kVersionOfPairs = 2;
constexpr size_t kHashDigits = 64;
constexpr uint64_t kLeastChunkBytes = 4096, kMostChunkBytes = uint64_t{64} << 20;

Status Wrong(const std::string& problem) {
  return absl::InvalidArgumentError("not a data set: " + problem);
}

Status CheckHashes(const HashedFile& file, uint64_t chunk_bytes) {
  LH_RETURN_IF_ERROR(CheckInside(file.file));
  const uint64_t chunks = (file.bytes + chunk_bytes - 1) / chunk_bytes;
  if (file.chunks.size() != chunks * kHashDigits) {
    return Wrong(fmt::format("{} has {} bytes and hashes of {} digits, expected {}", file.file,
                             file.bytes, file.chunks.size(), chunks * kHashDigits));
  }
  for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
    if (!IsSha256Hex(file.ChunkSha256(chunk))) {
      return Wrong(fmt::format("the hash of chunk {} of {} is none", chunk, file.file));
    }
  }
  return absl::OkStatus();
}

StatusOr<TokenList> ParseList(const Json& json, const DataSet& set) {
  TokenList list;
  for (const Json& one : json) {
    Shard shard;
    shard.tokens = one.at("tokens").get<uint64_t>();
    if (shard.tokens > std::numeric_limits<uint64_t>::max() / 8) return Wrong("too many tokens");
    shard.ids = {.file = one.at("file").get<std::string>(),
                 .offset = one.value("offset", uint64_t{0}),
                 .bytes = shard.tokens * set.bytes_per_token,
                 .chunks = one.at("chunks").get<std::string>()};
    LH_RETURN_IF_ERROR(CheckHashes(shard.ids, set.chunk_bytes));
    if (one.contains("mask") && !one["mask"].is_null()) {
      const Json& mask = one["mask"];
      shard.mask = {.file = mask.at("file").get<std::string>(),
                    .offset = 0,
                    .bytes = (shard.tokens + 7) / 8,
                    .chunks = mask.at("chunks").get<std::string>()};
      LH_RETURN_IF_ERROR(CheckHashes(*shard.mask, set.chunk_bytes));
    }
    list.shards.push_back(std::move(shard));
  }
  return list;
}

Json ListJson(const TokenList& list) {
  Json json = Json::array();
  for (const Shard& shard : list.shards) {
    Json one = {{"file", shard.ids.file},
                {"offset", shard.ids.offset},
                {"tokens", shard.tokens},
                {"chunks", shard.ids.chunks}};
    if (shard.mask) one["mask"] = {{"file", shard.mask->file}, {"chunks", shard.mask->chunks}};
    json.push_back(std::move(one));
  }
  return json;
}

StatusOr<DataSet> FromJson(const Json& json) {
  DataSet set;
  if (const Json tokenizer = json.value("tokenizer", Json()); tokenizer.is_object()) {
    set.tokenizer = tokenizer.value("name", std::string());
    set.tokenizer_sha256 = tokenizer.value("sha256", std::string());
    if (!set.tokenizer_sha256.empty() && !IsSha256Hex(set.tokenizer_sha256)) {
      return Wrong("the hash of its tokenizer is none");
    }
  }
  set.vocabulary = json.at("vocabulary").get<uint32_t>();
  set.bytes_per_token = json.at("bytes_per_token").get<uint32_t>();
  set.packed = json.value("packed", 0u);
  set.chunk_bytes = json.at("chunk_bytes").get<uint64_t>();
  if (const Json end = json.value("end_token", Json()); end.is_number_unsigned()) {
    set.end_token = end.get<uint32_t>();
  }
  set.ends_inside = json.value("ends_inside", uint64_t{0});
  if (const Json targets = json.value("targets", Json()); targets.is_number_unsigned()) {
    set.targets = targets.get<uint64_t>();
  }
  if (const Json pairs = json.value("pairs", Json()); pairs.is_number_unsigned()) {
    set.pairs = pairs.get<uint64_t>();
  }
  if (set.bytes_per_token != 2 && set.bytes_per_token != 4) {
    return Wrong(fmt::format("expected 2 or 4 bytes a token, got {}", set.bytes_per_token));
  }
  if (set.pairs && set.packed == 0) return Wrong("its pairs are not packed for a context");
  if (set.vocabulary == 0 ||
      set.vocabulary > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return Wrong(fmt::format("its vocabulary is {}", set.vocabulary));
  }
  if (set.chunk_bytes < kLeastChunkBytes || set.chunk_bytes > kMostChunkBytes ||
      set.chunk_bytes % 8 != 0) {
    return Wrong(fmt::format("expected chunks of {} to {} bytes, got {}", kLeastChunkBytes,
                             kMostChunkBytes, set.chunk_bytes));
  }
  LH_ASSIGN_OR_RETURN(set.training, ParseList(json.at("training"), set));
  LH_ASSIGN_OR_RETURN(set.validation, ParseList(json.value("validation", Json::array()), set));
  return set;
}

}  // namespace

Status CheckInside(std::string_view file) {
  bool inside = !file.empty() && file.find('\0') == std::string_view::npos;
  for (size_t begin = 0; inside && begin <= file.size();) {
    const size_t end = std::min(file.find('/', begin), file.size());
    const std::string_view name = file.substr(begin, end - begin);
    inside = !name.empty() && name != "." && name != "..";
    begin = end + 1;
  }
  if (inside) return absl::OkStatus();
  return Wrong(fmt::format(
      "'{}' is no file of it{}", Printable(file, 200),
      file.starts_with('/') ? "; prepare it anew, which puts token files into its folder" : ""));
}

uint64_t TokenList::tokens() const {
  uint64_t tokens = 0;
  for (const Shard& shard : shards) tokens += shard.tokens;
  return tokens;
}

bool DataSet::has_masks() const {
  const auto has = [](const TokenList& list) {
    return std::any_of(list.shards.begin(), list.shards.end(),
                       [](const Shard& shard) { return shard.mask.has_value(); });
  };
  return has(training) || has(validation);
}

StatusOr<DataSet> ParseDataSet(std::string_view text) {
  const Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kSetFormat) {
    return Wrong(fmt::format("expected an object of the format '{}'", kSetFormat));
  }
  const Json version = json.value("version", Json());
  if (version != kVersion && version != kVersionOfPairs) {
    return Wrong(fmt::format("expected version {} or {}; another version of longhaul wrote it",
                             kVersion, kVersionOfPairs));
  }
  if ((version == kVersionOfPairs) != json.contains("pairs")) {
    return Wrong(fmt::format("expected pairs in version {} alone", kVersionOfPairs));
  }
  try {
    return FromJson(json);
  } catch (const Json::exception& error) {
    return Wrong(error.what());
  }
}

Status CheckMixture(const Mixture& mixture, uint32_t context, bool by_documents) {
  std::string problems;
  const auto add = [&](const std::string& problem) {
    problems += (problems.empty() ? "" : "\n") + problem;
  };
  if (mixture.sources.empty()) add("expected at least one data set");
  if (mixture.sources.size() > Mixture::kMostSources) {
    add(fmt::format("expected at most {} data sets, got {}; join some of them",
                    Mixture::kMostSources, mixture.sources.size()));
  }
  std::set<std::string> folders;
  for (const Source& source : mixture.sources) {
    const DataSet& set = source.set;
    if (!folders.insert(source.folder).second) {
      add(fmt::format("{}: it is there twice; give it a larger weight", source.folder));
    }
    if (!(source.weight > 0) || !std::isfinite(source.weight)) {
      add(fmt::format("{}: expected a weight above 0, got {}", source.folder, source.weight));
    }
    if (set.vocabulary != mixture.vocabulary()) {
      add(fmt::format(
          "{}: its vocabulary is {}, and that of {} is {}; prepare both with one "
          "tokenizer",
          source.folder, set.vocabulary, mixture.sources.front().folder, mixture.vocabulary()));
    }
    const Source& first = mixture.sources.front();
    if (!set.tokenizer_sha256.empty() && !first.set.tokenizer_sha256.empty() &&
        set.tokenizer_sha256 != first.set.tokenizer_sha256) {
      add(
          fmt::format("{}: its tokenizer {} is another one than {} of {}: tokenizer.json differs "
                      "(SHA-256 {}... "
                      "and {}...); prepare both with one tokenizer",
                      source.folder, set.tokenizer, first.set.tokenizer, first.folder,
                      set.tokenizer_sha256.substr(0, 8), first.set.tokenizer_sha256.substr(0, 8)));
    }
    if (set.targets == 0u) {
      add(
          fmt::format("{}: the loss counts on none of its tokens, so nothing would be learned; "
                      "`longhaul data show` shows what it has",
                      source.folder));
    }
    if (by_documents && set.ends_inside > 0) {
      add(fmt::format(
          "{}: its end token {} also stands inside documents ({} times), as where it ends a turn "
          "of "
          "a conversation, so data.mask: document would cut these; prepare it with another "
          "--end-token that stands in no document, or leave data.mask out",
          source.folder, set.end_token.value_or(0), set.ends_inside));
    }
    if (set.has_masks() != mixture.has_masks()) {
      add(fmt::format("{}: of {} and {} one has loss masks and the other has none", source.folder,
                      source.folder, mixture.sources.front().folder));
    }
    if (by_documents &&
        (!set.end_token || set.end_token != mixture.sources.front().set.end_token)) {
      add(set.end_token
              ? fmt::format("{}: its documents end with the token {}, and those of {} with {}",
                            source.folder, *set.end_token, mixture.sources.front().folder,
                            mixture.sources.front().set.end_token.value_or(0))
              : fmt::format("{}: it does not say which token ends a document; prepare it with "
                            "--end-token",
                            source.folder));
    }
    if (set.packed != 0 && set.packed != context) {
      add(
          fmt::format("{}: it was packed for a context of {}, and model.context is {}; set it to "
                      "that, or prepare the data anew",
                      source.folder, set.packed, context));
    }
    if (set.training.tokens() <= context) {
      add(fmt::format("{}: its {} tokens are less than one window of {} (model.context + 1)",
                      source.folder, set.training.tokens(), uint64_t{context} + 1));
    }
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

Status CheckPairs(const Mixture& mixture, bool pairs) {
  std::string problems;
  for (const Source& source : mixture.sources) {
    if (source.set.pairs.has_value() == pairs) continue;
    problems += fmt::format(
        "{}{}: {}", problems.empty() ? "" : "\n", source.folder,
        pairs
            ? "it has no pairs of answers, on which train.dpo trains; prepare it with "
              "`longhaul data prepare --pairs`, or leave train.dpo out"
            : "it has pairs of a chosen and a rejected answer; set train.dpo (with train.lora) to "
              "train on them, or prepare it without --pairs to train on the chosen answers alone");
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

std::vector<std::string> FoldersOf(const Mixture& mixture) {
  std::vector<std::string> folders;
  for (const Source& source : mixture.sources) folders.push_back(source.folder);
  return folders;
}

Status CheckFolders(const std::vector<std::string>& of_list,
                    const std::vector<std::string>& of_run_file) {
  if (of_list.size() != of_run_file.size()) {
    return InvalidArgument("expected a list of {} data sets, as data.sets has them, got one of {}",
                           of_run_file.size(), of_list.size());
  }
  const auto [wrong, expected] = std::ranges::mismatch(of_list, of_run_file);
  if (wrong == of_list.end()) return absl::OkStatus();
  return InvalidArgument(
      "expected a list of the data set in {}, as data.sets has it, got one of {}",
      Printable(*expected, 200), Printable(*wrong, 200));
}

std::string ToJson(const Mixture& mixture) {
  Json sources = Json::array();
  for (const Source& source : mixture.sources) {
    const DataSet& set = source.set;
    Json one = {{"folder", source.folder},
                {"weight", source.weight},
                {"vocabulary", set.vocabulary},
                {"bytes_per_token", set.bytes_per_token},
                {"packed", set.packed},
                {"chunk_bytes", set.chunk_bytes},
                {"training", ListJson(set.training)},
                {"validation", ListJson(set.validation)}};
    if (set.end_token) one["end_token"] = *set.end_token;
    if (set.ends_inside > 0) one["ends_inside"] = set.ends_inside;
    if (set.targets) one["targets"] = *set.targets;
    if (set.pairs) one["pairs"] = *set.pairs;
    if (!set.tokenizer.empty()) one["tokenizer"] = {{"name", set.tokenizer}};
    if (!set.tokenizer_sha256.empty()) one["tokenizer"]["sha256"] = set.tokenizer_sha256;
    sources.push_back(std::move(one));
  }
  const Json json = {
      {"format", kMixtureFormat}, {"version", kVersion}, {"sources", std::move(sources)}};
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

StatusOr<Mixture> MixtureFromJson(std::string_view text) {
  const Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", Json()) != kMixtureFormat ||
      json.value("version", Json()) != kVersion) {
    return Wrong(
        fmt::format("expected an object of the format '{}', version {}", kMixtureFormat, kVersion));
  }
  Mixture mixture;
  try {
    for (const Json& one : json.at("sources")) {
      Source source{.folder = one.at("folder").get<std::string>(),
                    .weight = one.at("weight").get<double>(),
                    .set = {}};
      LH_ASSIGN_OR_RETURN(source.set, FromJson(one));
      mixture.sources.push_back(std::move(source));
    }
  } catch (const Json::exception& error) {
    return Wrong(error.what());
  }
  if (mixture.sources.empty()) return Wrong("expected at least one source");
  return mixture;
}

}  // namespace longhaul::data
