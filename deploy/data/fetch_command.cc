#include "deploy/data/fetch_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/remote/address.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "cli/model_source.h"
#include "cli/progress.h"
#include "cli/terminal.h"

namespace longhaul {
namespace {

using Json = nlohmann::json;

struct FoundFile {
  remote::Address address;
  uint64_t bytes = 0;
};

struct Found {
  bool is_folder = false;
  std::vector<FoundFile> files;
};

// The files below a folder.
StatusOr<Found> FilesIn(const remote::Store& store, const remote::Address& folder,
                        const http::Call& call) {
  LH_ASSIGN_OR_RETURN(const remote::Listing listing, store.List(folder, call));
  Found found{.is_folder = true};
  for (const remote::Entry& entry : listing.entries) {
    LH_ASSIGN_OR_RETURN(remote::Address file, remote::Inside(listing.at, entry.path));
    found.files.push_back({.address = std::move(file), .bytes = entry.bytes});
  }
  return found;
}

// Adds the index of a token file of Megatron, without which it would be taken for one of another
// kind.
Status AddIndex(const remote::Store& store, const http::Call& call, Found* found) {
  constexpr std::string_view kTokens = ".bin";
  remote::Address index = found->files.front().address;
  if (!index.path.ends_with(kTokens)) return absl::OkStatus();
  index.path.replace(index.path.size() - kTokens.size(), kTokens.size(), ".idx");
  const StatusOr<remote::Version> version = store.Look(index, call);
  if (version.ok()) {
    found->files.push_back({.address = std::move(index), .bytes = version->bytes});
  } else if (!absl::IsNotFound(version.status()) && !absl::IsPermissionDenied(version.status())) {
    return version.status();
  }
  return absl::OkStatus();
}

// The file at the address, or the files of the folder.
StatusOr<Found> Find(const remote::Store& store, remote::Address address, const http::Call& call) {
  const bool has_lists = address.kind != remote::Kind::kWeb;
  if (address.IsFolder() && !has_lists) {
    return InvalidArgument("{}: web servers have no lists of folders; name each file",
                           remote::ShownAddress(address));
  }
  if (address.IsFolder()) return FilesIn(store, address, call);
  const StatusOr<remote::Version> version = store.Look(address, call);
  if (version.ok()) {
    Found found{.files = {{std::move(address), version->bytes}}};
    LH_RETURN_IF_ERROR(AddIndex(store, call, &found));
    return found;
  }
  if (!has_lists || !absl::IsNotFound(version.status())) return version.status();
  // Users leave the '/' at a folder's end out.
  address.path += '/';
  StatusOr<Found> found = FilesIn(store, address, call);
  if (!found.ok() || found->files.empty()) return version.status();
  return found;
}

// `request`: addresses. The result says for each of them whether it is a folder, and its files.
StatusOr<Json> ListFiles(const Json& request, const http::Call& call) {
  Json answer = Json::array();
  for (const Json& text : request) {
    LH_ASSIGN_OR_RETURN(remote::Address address, remote::ParseAddress(text.get<std::string>()));
    LH_ASSIGN_OR_RETURN(const std::unique_ptr<remote::Store> store, cli::OpenStore(address));
    LH_ASSIGN_OR_RETURN(const Found found, Find(*store, std::move(address), call));
    Json files = Json::array();
    for (const FoundFile& file : found.files) {
      files.push_back({{"address", remote::ToString(file.address)},
                       {"shown", remote::ShownAddress(file.address)},
                       {"bytes", file.bytes}});
    }
    answer.push_back({{"is_folder", found.is_folder}, {"files", std::move(files)}});
  }
  return answer;
}

// `request`: for each file its address, its size in bytes, and the path that it gets.
StatusOr<Json> Fetch(const Json& request, const http::Call& call) {
  const cli::Terminal terminal = cli::ProcessTerminal();
  cli::Progress progress(terminal, "fetching the texts");
  uint64_t total = 0, done = 0;
  for (const Json& file : request) total += file.at("bytes").get<uint64_t>();
  for (const Json& file : request) {
    LH_ASSIGN_OR_RETURN(const remote::Address address,
                        remote::ParseAddress(file.at("address").get<std::string>()));
    LH_ASSIGN_OR_RETURN(const std::unique_ptr<remote::Store> store, cli::OpenStore(address));
    LH_ASSIGN_OR_RETURN(const remote::Version version, store->Look(address, call));
    LH_RETURN_IF_ERROR(
        store->ReadToFile(address, version, file.at("path").get<std::string>(), call));
    done += version.bytes;
    progress.Bytes(done, total);
  }
  return Json::array();
}

// Reads the request from standard input, and writes the answer, or {"error": ...}, as JSON.
int Run(StatusOr<Json> (*work)(const Json& request, const http::Call& call)) {
  StatusOr<Json> answer = Json();
  cli::Interrupt interrupt;
  try {
    const Json request = Json::parse(std::cin);
    answer = work(request, {.given_up = [&] { return interrupt.fired(); }});
  } catch (const Json::exception& error) {
    answer = InvalidArgument("expected a list as JSON on standard input; {}", error.what());
  }
  const Json shown = answer.ok() ? *answer : Json{{"error", Message(answer.status())}};
  std::cout << shown.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace)
            << std::endl;
  return answer.ok() ? 0 : 1;
}

}  // namespace

void AddFetchCommand(CLI::App* data, int* exit_code) {
  CLI::App* command = data->add_subcommand("fetch", "Files at addresses, for `prepare`");
  command->group("");  // not shown
  const auto list = std::make_shared<bool>(false);
  command->add_flag("--list", *list, "Say what is there");
  command->callback([list, exit_code] { *exit_code = Run(*list ? ListFiles : Fetch); });
}

}  // namespace longhaul
