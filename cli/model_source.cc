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

StatusOr<ModelSource> FindModelSource(const std::string& from, const std::string& folder) {
  if (!remote::HasScheme(from)) {
    const std::string path = AbsolutePath(from, folder);
    LH_ASSIGN_OR_RETURN(published::Weights weights, published::ReadFolder(path));
    return ModelSource{.from = path, .weights = std::move(weights)};
  }
  LH_ASSIGN_OR_RETURN(const remote::Address address, remote::ParseAddress(from));
  LH_ASSIGN_OR_RETURN(published::Weights weights, ReadAddress(address));
  std::string pinned = weights.from;
  return ModelSource{.from = std::move(pinned), .weights = std::move(weights)};
}

}  // namespace longhaul::cli
