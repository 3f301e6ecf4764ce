#include "cli/model_source.h"

#include <filesystem>
#include <utility>

#include "base/remote/open.h"
#include "run/published/folder.h"
#include "run/published/remote/remote_folder.h"

namespace longhaul::cli {
namespace {

// Somebody waits for the answer: four attempts take some seconds.
constexpr int kAttempts = 4;

StatusOr<published::Weights> ReadAddress(const remote::Address& address) {
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<remote::Store> store, OpenStore(address));
  LH_ASSIGN_OR_RETURN(const std::unique_ptr<published::ModelFolder> folder,
                      published::OpenRemoteFolder(*store, address));
  return published::ReadFolder(*folder);
}

}  // namespace

StatusOr<std::unique_ptr<remote::Store>> OpenStore(const remote::Address& address) {
  return remote::OpenForPerson(address, kAttempts);
}

std::string AbsolutePath(const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path whole = fs::absolute(fs::path(folder) / path);
  const fs::path plain = whole.lexically_normal();
  // Behind a link to a folder, ".." leads elsewhere than the text says.
  std::error_code error;
  return fs::equivalent(whole, plain, error) ? plain.string() : whole.string();
}

Status CheckIsNoHubName(const std::string& from, const std::string& path, std::string_view what,
                        std::string_view below) {
  static constexpr std::string_view kInNames =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  const size_t slash = from.find('/');
  std::error_code error;
  const bool is_name = slash != std::string::npos && slash > 0 && slash + 1 < from.size() &&
                       from[0] != '.' && from.find('/', slash + 1) == std::string::npos &&
                       from.find_first_not_of(std::string(kInNames) + "/") == std::string::npos;
  if (!is_name || std::filesystem::exists(path, error)) return absl::OkStatus();
  return NotFound(
      "there is no folder {}; for the {} of this name on the Hugging Face Hub write hf://{}{}",
      path, what, below, from);
}

StatusOr<ModelSource> FindModelSource(const std::string& from, const std::string& folder) {
  if (!remote::HasScheme(from)) {
    const std::string path = AbsolutePath(from, folder);
    LH_RETURN_IF_ERROR(CheckIsNoHubName(from, path, "model", ""));
    LH_ASSIGN_OR_RETURN(published::Weights weights, published::ReadFolder(path));
    return ModelSource{.from = path, .weights = std::move(weights)};
  }
  LH_ASSIGN_OR_RETURN(const remote::Address address, remote::ParseAddress(from));
  LH_ASSIGN_OR_RETURN(published::Weights weights, ReadAddress(address));
  std::string pinned = weights.from;
  return ModelSource{.from = std::move(pinned), .weights = std::move(weights)};
}

}  // namespace longhaul::cli
