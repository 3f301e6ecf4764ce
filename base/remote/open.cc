#include "base/remote/open.h"

#include <fmt/format.h>

#include <utility>

#include "base/http/host_rules.h"
#include "base/remote/settings.h"

namespace longhaul::remote {

StatusOr<std::unique_ptr<Store>> OpenForPerson(const Address& address, int attempts) {
  LH_ASSIGN_OR_RETURN(const Settings settings, FindSettings());
  http::HostRules hosts = RulesFor(settings.endpoints);
  hosts.environment_proxy = true;
  if (address.kind == Kind::kWeb) {
    LH_ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl(ToString(address)));
    hosts.hosts.clear();  // the server may redirect to any public one
    hosts.local_hosts.push_back(fmt::format("{}:{}", url.host, url.port));
  }
  if (address.IsOnHub() && settings.endpoints.hub != Endpoints().hub) {
    hosts = http::HostRules::Trusting();  // the user's own hub redirects to servers of its own
  }
  return std::make_unique<Store>(
      settings, Options{.hosts = std::move(hosts), .patience = {.attempts = attempts}});
}

}  // namespace longhaul::remote
