#include "cli/model_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/http/host_rules.h"
#include "base/remote/settings.h"
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
  LH_ASSIGN_OR_RETURN(const remote::Settings settings, remote::FindSettings());
  http::HostRules hosts = remote::RulesFor(settings.endpoints);
  hosts.environment_proxy = true;
  if (address.kind == remote::Kind::kWeb) {
    LH_ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl(remote::ToString(address)));
    hosts.hosts.clear();  // the server may redirect to any public one
    hosts.local_hosts.push_back(fmt::format("{}:{}", url.host, url.port));
  }
  if (address.IsOnHub() && settings.endpoints.hub != remote::Endpoints().hub) {
    hosts = http::HostRules::Trusting();  // the user's own hub redirects to servers of its own
  }
  return std::make_unique<remote::Store>(
      settings, remote::Options{.hosts = std::move(hosts), .patience = {.attempts = kAttempts}});
}

StatusOr<ModelSource> FindModelSource(const std::string& from, const std::string& folder) {
  if (!remote::HasScheme(from)) {
    const std::string path = std::filesystem::absolute(std::filesystem::path(folder) / from);
    LH_ASSIGN_OR_RETURN(published::Weights weights, published::ReadFolder(path));
    return ModelSource{.from = path, .weights = std::move(weights)};
  }
  LH_ASSIGN_OR_RETURN(const remote::Address address, remote::ParseAddress(from));
  LH_ASSIGN_OR_RETURN(published::Weights weights, ReadAddress(address));
  std::string pinned = weights.from;
  return ModelSource{.from = std::move(pinned), .weights = std::move(weights)};
}

}  // namespace longhaul::cli
