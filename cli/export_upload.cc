#include "cli/export_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <regex>
#include <utility>

#include "base/file.h"
#include "cli/model_source.h"
#include "cli/progress.h"

namespace longhaul::cli {
namespace {

// Whoever finds a model's description finds its tensors, so these go last.
int Rank(const std::string& name) {
  if (name == "config.json" || name == "adapter_config.json" || name == "longhaul.json") return 3;
  if (name.ends_with(".index.json")) return 2;
  return name.ends_with(".safetensors") ? 0 : 1;
}

bool ComesFirst(const std::string& a, const std::string& b) {
  return std::pair(Rank(a), a) < std::pair(Rank(b), b);
}

StatusOr<remote::Address> ParseTarget(const std::string& to) {
  if (!remote::HasScheme(to)) {
    return InvalidArgument(
        "--to: expected an address such as hf://ORG/NAME, s3://BUCKET/FOLDER/ or "
        "gs://BUCKET/FOLDER/, got '{}'; --out names a folder of this machine",
        to);
  }
  StatusOr<remote::Address> address = remote::ParseAddress(to);
  if (!address.ok()) return Annotate(address.status(), "--to");
  if (address->kind == remote::Kind::kHubDataset) {
    return InvalidArgument("--to: expected the address of a model, got that of a data set: {}", to);
  }
  if (address->kind == remote::Kind::kWeb) {
    return absl::InvalidArgumentError(
        "--to: expected hf://, s3:// or gs://; web servers take no folders");
  }
  if (!address->IsFolder()) address->path += '/';
  return address;
}

}  // namespace

bool IsOfExport(const std::string& name) {
  static const std::regex kNames(
      R"((adapter_)?config\.json|(adapter_)?model\.safetensors|model\.safetensors\.index\.json|)"
      R"(model-\d+-of-\d+\.safetensors)");
  return std::regex_match(name, kNames);
}

StatusOr<std::unique_ptr<ExportUpload>> ExportUpload::Prepare(const std::string& to, bool overwrite,
                                                              const Terminal& terminal,
                                                              const http::Call& call) {
  LH_ASSIGN_OR_RETURN(remote::Address address, ParseTarget(to));
  LH_ASSIGN_OR_RETURN(std::unique_ptr<remote::Store> store, OpenStore(address));
  LH_ASSIGN_OR_RETURN(const bool is_new, store->PrepareWrites(address, call));
  if (is_new) {
    terminal.err << fmt::format("made the private repository {}", address.place) << std::endl;
  }
  LH_ASSIGN_OR_RETURN(const remote::Listing listing, store->List(address, call));
  if (!address.IsOnHub() && !listing.entries.empty() && !overwrite) {
    return AlreadyExists(
        "--to: {} has objects already, such as {}; name another folder, or give --overwrite to "
        "replace an older export there",
        remote::ToString(address), listing.entries.front().path);
  }
  std::vector<std::string> older;
  for (const remote::Entry& entry : listing.entries) {
    if (IsOfExport(entry.path)) older.push_back(entry.path);
  }
  // The description goes first, as it comes last.
  std::ranges::sort(older, [](const auto& a, const auto& b) { return ComesFirst(b, a); });
  return std::unique_ptr<ExportUpload>(
      new ExportUpload(std::move(address), std::move(store), std::move(older)));
}

Status ExportUpload::Send(const std::string& folder, const std::string& summary,
                          const Terminal& terminal, const http::Call& call) const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names, ComesFirst);
  std::vector<MappedFile> mapped;  // read from the disk as they are sent
  remote::FolderChange change{.removed = older_, .summary = summary};
  uint64_t total = 0;
  for (const std::string& name : names) {
    LH_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(fmt::format("{}/{}", folder, name)));
    change.files.push_back({.path = name, .bytes = file.bytes()});
    total += file.bytes().size();
    mapped.push_back(std::move(file));
  }
  Progress progress(terminal, "uploading the export");
  std::mutex mutex;
  change.progress = [&](uint64_t bytes) {
    const std::lock_guard lock(mutex);
    progress.Bytes(bytes, total);
  };
  return store_->WriteAll(to_, change, call);
}

}  // namespace longhaul::cli
